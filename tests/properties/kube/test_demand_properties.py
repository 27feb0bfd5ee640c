"""Demand, traits and selectors against rules written down a second time, on any pod."""

from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from ledger.core.model import traits
from ledger.core.model.denials import Denial
from ledger.kube.api import label_selectors
from ledger.kube.api.label_selectors import LabelRequirement, LabelSelector
from ledger.kube.api.objects import Pod, ScopeRequirement, ScopeSelector
from ledger.kube.quotas import quota_scopes
from ledger.kube.requests import gpu_type_annotation
from ledger.kube.requests.demand_rules import DemandRules
from ledger.kube.requests.gpu_type_annotation import CardType
from ledger.kube.requests.pod_demand import Demand, demand_of
from ledger.kube.requests.pod_traits import traits_of
from ledger.kube.requests.recorded_labels import RecordedLabels
from ledger.kube.vendors.vendors import BUILT_IN

RULES = DemandRules(vendors=BUILT_IN, worst_card_memory=10_000, managed=("cpu",))
TYPED = msgspec.structs.replace(RULES, types=(CardType("v100"), CardType("a100")))
NAMES = sorted(RULES.of_cards)
TYPE_KEY = gpu_type_annotation.ANNOTATIONS[0]

amounts = st.one_of(st.integers(0, 200), st.sampled_from(["1", "8k", "2Gi", "0", "x", "-1", "50m"]))
requests = st.dictionaries(st.sampled_from([*NAMES[:12], "cpu", "memory"]), amounts, max_size=4)
containers = st.lists(
    st.fixed_dictionaries({"resources": st.fixed_dictionaries({"limits": requests})}), max_size=3
)
labels = st.dictionaries(st.sampled_from("abc"), st.sampled_from(["", "x", "y"]), max_size=3)
specs = st.fixed_dictionaries(
    {"containers": containers, "initContainers": containers},
    optional={
        "priorityClassName": st.sampled_from(["", "high", "low"]),
        "activeDeadlineSeconds": st.sampled_from([None, 0, 30]),
    },
)
values = st.lists(st.sampled_from(["", "x", "y", "high", "low"]), min_size=1, max_size=2)
operators = st.one_of(
    st.tuples(st.sampled_from(["In", "NotIn"]), values),
    st.tuples(st.sampled_from(["Exists", "DoesNotExist"]), st.none()),
)


def pod(spec: dict[str, Any], metadata: dict[str, Any] | None = None) -> Pod:
    return msgspec.convert({"metadata": metadata or {}, "spec": spec}, Pod)


def holds(value: str | None, operator: str, among: list[str] | None) -> bool:
    """Return whether a condition holds for a value, None for a missing one: Kubernetes' rule."""
    if operator == "Exists":
        return value is not None
    if operator == "DoesNotExist":
        return value is None
    return (value is not None and value in (among or [])) is (operator == "In")


def refuse(text: str) -> None:
    raise AssertionError(f"nothing is wrong with this selector: {text}")


@given(specs)
def test_demand_is_positive_amounts_of_known_names_or_a_denial(
    spec: dict[str, Any],
) -> None:
    outcome = demand_of(pod(spec), RULES)
    if isinstance(outcome, Denial):
        assert outcome.remedy
        assert outcome.field.startswith("spec")
        return
    assert list(outcome.amounts) == sorted(outcome.amounts)
    assert all(amount > 0 for amount in outcome.amounts.values())
    assert outcome.amounts.keys() <= {*RULES.charged, "limits.cpu", "requests.cpu"}


@given(specs)
def test_the_order_of_the_vendors_does_not_matter(spec: dict[str, Any]) -> None:
    backwards = msgspec.structs.replace(RULES, vendors=BUILT_IN[::-1])
    outcome, other = demand_of(pod(spec), RULES), demand_of(pod(spec), backwards)
    if isinstance(outcome, Demand):
        assert other == outcome
    else:
        assert isinstance(other, Denial)


@given(specs, st.sampled_from(["v100", "a100", "A100,v100"]))
def test_a_type_adds_its_own_keys_and_changes_nothing_else(
    spec: dict[str, Any], named: str
) -> None:
    plain = demand_of(pod(spec), TYPED)
    typed = demand_of(pod(spec, {"annotations": {TYPE_KEY: named}}), TYPED)
    if isinstance(plain, Denial) or isinstance(typed, Denial):
        assert plain == typed
        return
    cards = {name: plain.amounts[name] for name in plain.amounts if name in RULES.of_cards}
    wanted = {
        f"{card_type}.{name}": amount
        for card_type in named.lower().split(",")
        for name, amount in cards.items()
    }
    assert typed.amounts == {**plain.amounts, **wanted}


NAMED = RecordedLabels(("a", "b", "c"))


@given(labels, st.lists(st.tuples(st.sampled_from("abc"), operators), max_size=3))
def test_label_selectors_select_as_kubernetes_does(
    carried: dict[str, str], conditions: list[tuple[str, tuple[str, list[str] | None]]]
) -> None:
    selector = LabelSelector(
        match_expressions=[LabelRequirement(key, *condition) for key, condition in conditions]
    )
    selection = label_selectors.of_labels(selector, "spec.objectSelector", refuse)
    text = traits_of(pod({}, {"labels": carried}), NAMED)
    wanted = all(holds(carried.get(key), *condition) for key, condition in conditions)
    assert traits.matches(selection, (text,)) is wanted


@given(labels)
def test_match_labels_are_conditions_of_equality(wanted: dict[str, str]) -> None:
    selection = label_selectors.of_labels(LabelSelector(match_labels=wanted), "spec", refuse)
    assert traits.matches(selection, (traits_of(pod({}, {"labels": wanted}), NAMED),))
    for key in wanted:
        other = {**wanted, key: "z"}
        assert not traits.matches(selection, (traits_of(pod({}, {"labels": other}), NAMED),))


@given(specs, operators)
def test_scopes_select_pods_as_kubernetes_does(
    spec: dict[str, Any], condition: tuple[str, list[str] | None]
) -> None:
    text = traits_of(pod(spec))
    computes = any(
        container["resources"]["limits"].get(name, 0) not in (0, "0")
        for field in ("containers", "initContainers")
        for container in spec[field]
        for name in ("cpu", "memory")
    )
    terminating = spec.get("activeDeadlineSeconds") is not None
    wanted = {
        "Terminating": terminating,
        "NotTerminating": not terminating,
        "BestEffort": not computes,
        "NotBestEffort": computes,
        "CrossNamespacePodAffinity": False,
    }
    for scope, selected in wanted.items():
        selection = quota_scopes.of_scopes([scope], None, refuse)
        assert selection is not None
        assert traits.matches(selection, (text,)) is selected, scope
    chosen = ScopeSelector([ScopeRequirement("PriorityClass", *condition)])
    by_class = quota_scopes.of_scopes(None, chosen, refuse)
    assert by_class is not None
    priority = spec.get("priorityClassName") or None
    assert traits.matches(by_class, (text,)) is holds(priority, *condition)
