"""Limits of ResourceQuotas."""

import msgspec
import pytest

from ledger.core.model.traits import Requirement
from ledger.kube.api.objects import (
    ObjectMeta,
    ResourceQuota,
    ResourceQuotaSpec,
    ScopeRequirement,
    ScopeSelector,
)
from ledger.kube.quotas.resource_quota_limits import limits_of, lint
from ledger.kube.requests import gpu_type_annotation
from ledger.kube.requests.demand_rules import DemandRules
from ledger.kube.vendors.vendors import NVIDIA, select_vendors

MEM = "limits.nvidia.com/gpumem"
RULES = DemandRules()
KIBI = DemandRules(vendors=(msgspec.structs.replace(NVIDIA, memory_factor=1024),))
"""Memory is asked for in GiB."""


TYPES = gpu_type_annotation.parse_types(("v100=32768", "A100"))


def selecting(*conditions) -> ScopeSelector:
    return ScopeSelector([ScopeRequirement(*condition) for condition in conditions])


def quota(hard, **spec) -> ResourceQuota:
    return ResourceQuota(ObjectMeta(name="q"), ResourceQuotaSpec(hard=hard, **spec))


def limits(hard, rules: DemandRules = RULES, **options) -> dict[str, int]:
    return limits_of(quota(hard), rules, **options).limits


def warnings(hard, rules: DemandRules = RULES) -> str:
    return "\n".join(limits_of(quota(hard), rules).warnings)


def test_both_prefixes_of_the_managed_resources_are_limits():
    hard = {
        f"{prefix}.nvidia.com/{name}": "3"
        for prefix in ("limits", "requests")
        for name in ("gpu", "gpumem", "gpucores")
    }
    assert limits(hard) == dict.fromkeys(hard, 3)
    assert warnings(hard) == ""


def test_quantities_are_read_as_the_api_server_writes_them():
    assert limits({MEM: "16k"}) == {MEM: 16_000}
    assert limits({MEM: 5}) == {MEM: 5}


def test_an_explicit_zero_is_a_limit_of_nothing():
    assert limits({MEM: "0"}) == {MEM: 0}


def test_zero_means_unlimited_only_when_asked_for():
    assert limits({MEM: "0", "limits.nvidia.com/gpu": "1"}, zero_is_unlimited=True) == {
        "limits.nvidia.com/gpu": 1
    }


def test_the_memory_factor_applies_to_limits_of_memory_alone():
    hard = {MEM: "16", "limits.nvidia.com/gpu": "2"}
    assert limits(hard, KIBI) == {MEM: 16_384, "limits.nvidia.com/gpu": 2}


def test_fraction_is_rounded_down_with_a_warning():
    assert limits({"requests.nvidia.com/gpu": "1500m"}) == {"requests.nvidia.com/gpu": 1}
    assert limits({"requests.nvidia.com/gpu": "1n"}) == {"requests.nvidia.com/gpu": 0}
    assert "1500m is not a whole number and holds as 1" in warnings(
        {"requests.nvidia.com/gpu": "1500m"}
    )


def test_a_binary_suffix_means_bytes_and_is_warned_about():
    assert limits({MEM: "16Gi"}) == {MEM: 16_384}
    assert "16Gi has a binary suffix and so counts bytes, so it holds as 16384" in warnings(
        {MEM: "16Gi"}
    )


@pytest.mark.parametrize("bad", ["many", "-1", "1e30", "9" * 80])
def test_value_limits_nothing_and_spares_the_other_keys_when_invalid(bad):
    hard = {MEM: bad, "limits.nvidia.com/gpu": "1"}
    assert limits(hard) == {"limits.nvidia.com/gpu": 1}
    assert f"{MEM}: {bad[:64]}" in warnings(hard)


def test_a_factor_that_leads_beyond_what_can_be_counted_is_a_warning():
    assert limits({MEM: str(2**50)}, KIBI) == {}
    assert "beyond 2^53" in warnings({MEM: str(2**50)}, KIBI)


def test_keys_that_kubernetes_enforces_are_left_to_it():
    hard = {"cpu": "4", "requests.memory": "8Gi", "pods": "10", "count/jobs.batch": "3"}
    assert limits_of(quota(hard), RULES).limits == {}
    assert warnings(hard) == ""


@pytest.mark.parametrize(
    ("key", "advice"),
    [
        ("nvidia.com/gpumem", "write limits.nvidia.com/gpumem"),
        ("limits.nvidia.com/gpumem-percentage", "limit nvidia.com/gpumem instead"),
        ("requests.nvidia.com/gpumem-percentage", "limit nvidia.com/gpumem instead"),
        ("limits.amd.com/gpu", "not a managed resource"),
    ],
)
def test_keys_cause_a_warning_when_they_are_not_enforced(key, advice):
    assert limits({key: "1"}) == {}
    assert advice in warnings({key: "1"})


@pytest.mark.parametrize(
    ("scope", "key", "operator"),
    [
        ("Terminating", "!terminating", "Exists"),
        ("NotTerminating", "!terminating", "DoesNotExist"),
        ("BestEffort", "!best-effort", "Exists"),
        ("NotBestEffort", "!best-effort", "DoesNotExist"),
        ("PriorityClass", "!priority", "Exists"),
        ("CrossNamespacePodAffinity", "!cross-namespace-affinity", "Exists"),
    ],
)
def test_every_scope_of_pods_selects_them_in_either_way_of_writing_it(scope, key, operator):
    wanted = (Requirement(key, operator),)
    assert limits_of(quota({MEM: "1"}, scopes=[scope]), RULES).selects == wanted
    read = limits_of(quota({MEM: "1"}, scope_selector=selecting((scope, "Exists"))), RULES)
    assert (read.selects, read.limits, read.warnings) == (wanted, {MEM: 1}, ())


@pytest.mark.parametrize("operator", ["In", "NotIn", "Exists", "DoesNotExist"])
def test_priority_classes_are_selected_by_every_operator(operator):
    values = ["high", "low"] if operator.endswith("In") else None
    selector = selecting(("PriorityClass", operator, values))
    read = limits_of(quota({MEM: "1"}, scope_selector=selector), RULES)
    assert read.selects == (Requirement("!priority", operator, tuple(values or ())),)


def test_all_scopes_must_hold_and_one_given_twice_counts_once():
    selector = selecting(("PriorityClass", "In", ["high"]), ("BestEffort", "Exists"))
    read = limits_of(quota({MEM: "1"}, scopes=["BestEffort"], scope_selector=selector), RULES)
    assert read.selects == (
        Requirement("!best-effort", "Exists"),
        Requirement("!priority", "In", ("high",)),
    )


@pytest.mark.parametrize(
    ("condition", "advice"),
    [
        (("Sunny", "Exists"), "use one of Terminating"),
        (("Terminating", "In", ["x"]), "takes the operator Exists alone"),
        (("PriorityClass", "in", ["x"]), "'in' is none of In, NotIn, Exists, DoesNotExist"),
        (("PriorityClass", "In"), "the operator In needs values"),
        (("PriorityClass", "Exists", ["x"]), "the operator Exists takes no values"),
    ],
)
def test_condition_is_left_out_and_the_limit_widens_when_invalid(condition, advice):
    selector = selecting(condition, ("BestEffort", "Exists"))
    read = limits_of(quota({MEM: "1"}, scope_selector=selector), RULES)
    assert read.limits == {MEM: 1}
    assert read.selects == (Requirement("!best-effort", "Exists"),)
    assert read.warnings[0].startswith("spec.scopeSelector.matchExpressions[0]: ")
    assert advice in read.warnings[0]


def test_volume_quota_limits_no_pod_and_has_a_warning():
    selector = selecting(("VolumeAttributesClass", "In", ["gold"]))
    read = limits_of(quota({MEM: "1"}, scope_selector=selector), RULES)
    assert read.limits == {}
    assert "limits no pod" in read.warnings[0]


def test_what_limits_nothing_of_ours_is_not_warned_about_for_its_scopes():
    selector = selecting(("VolumeAttributesClass", "In", ["gold"]))
    assert limits_of(quota({"pods": "1"}, scope_selector=selector), RULES).warnings == ()


def test_a_type_of_card_has_keys_of_its_own_with_the_factor_of_the_memory():
    rules = msgspec.structs.replace(KIBI, types=TYPES)
    hard = {"limits.v100.nvidia.com/gpumem": "2", "requests.a100.nvidia.com/gpu": "3"}
    assert limits(hard, rules) == {
        "limits.v100.nvidia.com/gpumem": 2048,
        "requests.a100.nvidia.com/gpu": 3,
    }
    assert warnings(hard, rules) == ""


@pytest.mark.parametrize(
    ("key", "advice"),
    [
        (
            "limits.h100.nvidia.com/gpumem",
            "'h100' is not a known type of card (known are v100, a100)",
        ),
        ("requests.h100.nvidia.com/gpu", "gpu_types"),
        ("v100.nvidia.com/gpumem", "write limits.v100.nvidia.com/gpumem"),
        ("limits.v100.nvidia.com/gpumem-percentage", "limit nvidia.com/gpumem instead"),
    ],
)
def test_type_keys_cause_a_warning_when_they_are_not_enforced(key, advice):
    rules = DemandRules(types=TYPES)
    assert limits({key: "1"}, rules) == {}
    assert advice in warnings({key: "1"}, rules)


def test_without_known_types_a_key_of_one_is_warned_about():
    assert "none is known" in warnings({"limits.v100.nvidia.com/gpumem": "1"})


def test_other_vendors_keys_hold_when_they_are_switched_on():
    hard = {"limits.cambricon.com/mlu.smlu.vmemory": "2", "limits.cambricon.com/vmlu": "2"}
    assert limits(hard) == {}
    assert "not a managed resource" in warnings(hard)
    rules = DemandRules(vendors=select_vendors(["nvidia", "cambricon"]))
    assert limits({**hard, MEM: "5"}, rules) == {
        "limits.cambricon.com/mlu.smlu.vmemory": 512,
        "limits.cambricon.com/vmlu": 2,
        MEM: 5,
    }


def test_lint_adds_hints_when_a_limit_may_surprise():
    hard = {MEM: "4", "requests.nvidia.com/gpumem": "5", "nvidia.com/gpu": "1"}
    told = "\n".join(lint(quota(hard), RULES))
    assert "write limits.nvidia.com/gpu" in told
    assert f"{MEM} and requests.nvidia.com/gpumem limit the same" in told
    assert "regardless of the number of cards" in told


@pytest.mark.parametrize(
    "hard",
    [
        {MEM: "4", "limits.nvidia.com/gpu": "1", "pods": "3"},
        {"limits.cpu": "2", "requests.cpu": "1"},
        {"requests.v100.nvidia.com/gpumem": "4", "requests.nvidia.com/gpu": "2"},
    ],
)
def test_lint_is_empty_when_no_limit_may_surprise(hard):
    assert lint(quota(hard), DemandRules(types=TYPES, managed=("cpu",))) == ()


def test_native_resources_are_read_in_their_own_units_when_managed():
    rules = DemandRules(managed=("cpu", "memory"))
    hard = {"cpu": "1500m", "limits.cpu": "2", "requests.memory": "1Gi"}
    assert limits(hard, rules) == {"cpu": 1500, "limits.cpu": 2000, "requests.memory": 2**30}
