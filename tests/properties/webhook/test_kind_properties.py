"""Properties of envelopes: more replicas never need less, and no object makes them fail."""

from copy import deepcopy
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.builders.kind_objects import CATALOG, Case, all_cases, workload

from ledger.core.model.amounts import covers
from ledger.core.model.denials import Denial
from ledger.kube.requests.demand_rules import DemandRules
from webhook.admission.objects.scale_admission import with_replicas
from webhook.kinds.kind_schema import WorkloadKind
from webhook.kinds.workload_envelope import Envelope, envelope_of, surge_demand

RULES = DemandRules()
OPTIONS = st.fixed_dictionaries(
    {
        "surge": st.sampled_from(["opportunistic", "reserve", "strict"]),
        "elastic_max": st.booleans(),
    }
)
SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.integers(min_value=10**400, max_value=10**401)
    | st.floats(allow_nan=False)
    | st.text(max_size=8)
    | st.sampled_from(["25%", "Recreate", "True", "Complete"])
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner),
    max_leaves=6,
)
CASES = all_cases()
SCALABLE = [(kind, case) for kind, case in CASES if kind.scale is not None]


def places(thing: Any, way: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Return the way to every value inside a JSON value."""
    keys = range(len(thing)) if isinstance(thing, list) else thing
    ways = [(*way, key) for key in keys] if isinstance(thing, list | dict) else []
    return ways + [deeper for child in ways for deeper in places(thing[child[-1]], child)]


def replaced(thing: Any, way: tuple[Any, ...], value: Any) -> Any:
    """Return a copy with another value at one place."""
    result = deepcopy(thing)
    target = result
    for key in way[:-1]:
        target = target[key]
    target[way[-1]] = value
    return result


@given(st.sampled_from(SCALABLE), st.integers(0, 1000), st.integers(0, 1000), OPTIONS)
def test_more_replicas_never_need_less(
    example: tuple[WorkloadKind, Case], replicas: int, other: int, options: dict[str, Any]
) -> None:
    kind, case = example
    few, many = (
        envelope_of(kind, with_replicas(kind, case.workload, count), RULES, **options)
        for count in sorted((replicas, other))
    )
    assert isinstance(few, Envelope)
    assert isinstance(many, Envelope)
    assert covers(many.demand, few.demand)


@given(st.sampled_from(SCALABLE), st.integers(0, 1000))
def test_a_roll_out_holds_at_least_what_it_runs_without_surge(
    example: tuple[WorkloadKind, Case], count: int
) -> None:
    kind, case = example
    scaled = with_replicas(kind, case.workload, count)
    plain, reserved = (
        envelope_of(kind, scaled, RULES, surge=surge) for surge in ("opportunistic", "reserve")
    )
    assert isinstance(plain, Envelope)
    assert isinstance(reserved, Envelope)
    assert covers(reserved.demand, plain.demand)


SUSPENSIONS = {
    "jobs.batch": {"suspend": True},
    "jobsets.jobset.x-k8s.io": {"suspend": True},
    "mpijobs.kubeflow.org": {"runPolicy": {"suspend": True}},
    "pytorchjobs.kubeflow.org": {"runPolicy": {"suspend": True}},
    "rayclusters.ray.io": {"suspend": True},
    "rayjobs.ray.io": {"suspend": True},
    "tfjobs.kubeflow.org": {"runPolicy": {"suspend": True}},
    "trainjobs.trainer.kubeflow.org": {"suspend": True},
}


@pytest.mark.parametrize(
    ("kind", "case"),
    [pair for pair in CASES if pair[0].name in SUSPENSIONS],
    ids=lambda value: getattr(value, "name", "").replace(" ", "-"),
)
def test_suspension_releases_everything_of_any_object(kind: WorkloadKind, case: Case) -> None:
    manifest = deepcopy(case.object)
    manifest["spec"].update(SUSPENSIONS[kind.name])
    object_ = workload(manifest)
    for envelope in (
        envelope_of(kind, object_, RULES),
        envelope_of(kind, object_, RULES, surge="reserve", elastic_max=True),
    ):
        assert isinstance(envelope, Envelope)
        assert envelope.demand == {}


@given(st.sampled_from(CASES), st.data(), OPTIONS)
def test_an_object_with_anything_anywhere_is_answered(
    example: tuple[WorkloadKind, Case], data: st.DataObject, options: dict[str, Any]
) -> None:
    kind, case = example
    inside = [way for way in places(case.object) if way[0] in ("spec", "status") and len(way) > 1]
    way = data.draw(st.sampled_from(inside))
    changed = workload(replaced(case.object, way, data.draw(VALUES)))
    answers = (
        envelope_of(kind, changed, RULES, **options),
        surge_demand(kind, case.workload, changed, RULES),
    )
    for answer in answers:
        assert msgspec.json.encode(answer)
        if isinstance(answer, Denial):
            assert answer.message
            assert answer.remedy
            assert answer.field.startswith(("spec", "status"))


@given(st.sampled_from(list(CATALOG)), VALUES, VALUES)
def test_any_spec_and_status_are_answered(kind: WorkloadKind, spec: Any, status: Any) -> None:
    manifest = {"spec": {"template": spec, "replicas": status}, "status": {"conditions": status}}
    assert isinstance(envelope_of(kind, workload(manifest), RULES), Envelope | Denial)
