"""Limits of UniverseResourceQuotas, their reach and their selected objects."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from ledger.core.model import traits
from ledger.core.model.traits import Reach, Requirement
from ledger.kube.quotas.universe_quota_limits import (
    UniverseLimits,
    UniverseSpec,
    limits_of_universe,
    lint_universe,
    spec_of,
)
from ledger.kube.requests import namespace_traits
from ledger.kube.requests.demand_rules import DemandRules

DEFINITION = Path(__file__).parents[5] / "deploy" / "crds" / "universeresourcequotas.yaml"
GPU, MEM = "limits.nvidia.com/gpu", "limits.nvidia.com/gpumem"
RULES = DemandRules()


def read(**spec: Any) -> UniverseLimits:
    """Return the limits of a spec with the names of YAML; its default limit is one card."""
    return limits_of_universe(spec_of({"hard": {GPU: "1"}, **spec}), RULES)


def test_a_quota_without_conditions_reaches_and_selects_everything() -> None:
    assert read() == UniverseLimits({GPU: 1})
    assert read().reach == Reach()


def test_regions_clusters_and_namespaces_are_conditions_on_names() -> None:
    reach = read(regions=["eu", "us"], clusters=["east-1"], namespaces=["a", "b"]).reach
    assert reach.clusters == (
        Requirement("!region", "In", ("eu", "us")),
        Requirement("!name", "In", ("east-1",)),
    )
    assert reach.namespaces == (Requirement("!name", "In", ("a", "b")),)


def test_the_reach_selects_places_as_they_are_described() -> None:
    reach = read(
        regions=["eu"],
        clusterSelector={"matchLabels": {"tier": "1"}},
        namespaceSelector={"matchExpressions": [{"key": "env", "operator": "Exists"}]},
    ).reach
    inside = namespace_traits.of_cluster("east-1", "eu", {"tier": "1"})
    assert traits.matches(reach.clusters, (inside,))
    assert not traits.matches(
        reach.clusters, (namespace_traits.of_cluster("east-1", "us", {"tier": "1"}),)
    )
    assert not traits.matches(reach.clusters, (namespace_traits.of_cluster("east-1", "eu", None),))
    assert traits.matches(reach.namespaces, (namespace_traits.of_namespace("a", {"env": "prod"}),))
    assert not traits.matches(reach.namespaces, (namespace_traits.of_namespace("a", None),))


def test_scopes_and_labels_of_objects_are_conditions_that_must_all_hold() -> None:
    selects = read(
        scopes=["NotBestEffort"],
        scopeSelector={
            "matchExpressions": [
                {"scopeName": "PriorityClass", "operator": "In", "values": ["high"]}
            ]
        },
        objectSelector={
            "matchLabels": {"app": "web"},
            "matchExpressions": [{"key": "tier", "operator": "NotIn", "values": ["x"]}],
        },
    ).selects
    assert selects == (
        Requirement("!best-effort", "DoesNotExist"),
        Requirement("!priority", "In", ("high",)),
        Requirement("app", "In", ("web",)),
        Requirement("tier", "NotIn", ("x",)),
    )


@pytest.mark.parametrize(
    ("expression", "advice"),
    [
        ({"key": "a", "operator": "Is"}, "'Is' is none of In, NotIn, Exists, DoesNotExist"),
        ({"key": "a", "operator": "In"}, "the operator In needs values"),
        ({"key": "a", "operator": "NotIn", "values": []}, "the operator NotIn needs values"),
        ({"key": "a", "operator": "Exists", "values": ["x"]}, "takes no values"),
        ({"operator": "Exists"}, "has no key"),
    ],
)
@pytest.mark.parametrize("field", ["clusterSelector", "namespaceSelector", "objectSelector"])
def test_a_condition_that_cannot_be_read_is_left_out_with_a_warning(
    expression: dict[str, Any], advice: str, field: str
) -> None:
    quota = read(**{field: {"matchExpressions": [expression]}})
    assert (quota.limits, quota.reach, quota.selects) == ({GPU: 1}, Reach(), ())
    assert quota.warnings[0].startswith(f"spec.{field}.matchExpressions[0]: ")
    assert advice in quota.warnings[0]


def test_a_label_that_is_not_recorded_is_warned_about() -> None:
    quota = read(objectSelector={"matchLabels": {"pod-template-hash": "x", "app": "web"}})
    assert len(quota.warnings) == 1
    assert "the label pod-template-hash differs between the pods" in quota.warnings[0]


def test_a_quota_that_limits_nothing_of_ours_has_no_reach() -> None:
    assert read(hard={"pods": "3"}, regions=["eu"]) == UniverseLimits({})


def test_a_quota_of_volumes_limits_nothing() -> None:
    quota = read(scopes=["VolumeAttributesClass"])
    assert quota.limits == {}
    assert "limits no pod" in quota.warnings[0]


def test_an_explicit_zero_is_a_limit_unless_asked_otherwise() -> None:
    spec = spec_of({"hard": {MEM: "0"}})
    assert limits_of_universe(spec, RULES).limits == {MEM: 0}
    assert limits_of_universe(spec, RULES, zero_is_unlimited=True).limits == {}


def test_the_lint_names_every_key_that_limits_nothing() -> None:
    told = lint_universe(spec_of({"hard": {"pods": "3", "nvidia.com/gpu": "1", GPU: "2"}}), RULES)
    assert len(told) == 2
    assert (
        told[0]
        == "nvidia.com/gpu: Kubernetes does not enforce this key; write limits.nvidia.com/gpu"
    )
    assert told[1].startswith("pods: a universe quota limits nothing by this key")


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        ({"hard": []}, "`spec.hard`"),
        ({"regions": "eu"}, "`spec.regions`"),
        ({"scopes": [1]}, "scopes"),
    ],
)
def test_a_spec_of_another_shape_is_an_error_that_names_the_field(
    spec: dict[str, Any], field: str
) -> None:
    with pytest.raises(ValueError, match="apply the CRD") as failed:
        spec_of(spec)
    assert field in str(failed.value)


def test_a_missing_spec_is_an_empty_one() -> None:
    assert limits_of_universe(spec_of(None), RULES) == UniverseLimits({})


def test_every_field_of_the_definition_is_read() -> None:
    definition = yaml.safe_load(DEFINITION.read_text())
    (version,) = definition["spec"]["versions"]
    fields = version["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]
    assert {*fields} == {*UniverseSpec.__struct_encode_fields__}
