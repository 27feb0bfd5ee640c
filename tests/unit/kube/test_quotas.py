"""What a ResourceQuota limits."""

import pytest

from ledger.kube.objects import (
    ObjectMeta,
    ResourceQuota,
    ResourceQuotaSpec,
    ScopeRequirement,
    ScopeSelector,
)
from ledger.kube.quotas import limits_of
from ledger.kube.rules import DemandRules

MEM = "limits.nvidia.com/gpumem"
RULES = DemandRules()


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
    rules = DemandRules(memory_factor=1024)
    hard = {MEM: "16", "limits.nvidia.com/gpu": "2"}
    assert limits(hard, rules) == {MEM: 16_384, "limits.nvidia.com/gpu": 2}


def test_a_fraction_holds_as_the_whole_number_below_it_and_says_so():
    assert limits({"requests.nvidia.com/gpu": "1500m"}) == {"requests.nvidia.com/gpu": 1}
    assert limits({"requests.nvidia.com/gpu": "1n"}) == {"requests.nvidia.com/gpu": 0}
    assert "1500m is not a whole number and holds as 1" in warnings(
        {"requests.nvidia.com/gpu": "1500m"}
    )


def test_a_binary_suffix_means_what_kubernetes_means_and_is_warned_about():
    assert limits({MEM: "16Gi"}) == {MEM: 16 * 2**30}
    assert "16Gi counts no bytes here" in warnings({MEM: "16Gi"})


@pytest.mark.parametrize("bad", ["many", "-1", "1e30", "9" * 80])
def test_a_value_that_cannot_be_read_limits_nothing_and_spares_the_other_keys(bad):
    hard = {MEM: bad, "limits.nvidia.com/gpu": "1"}
    assert limits(hard) == {"limits.nvidia.com/gpu": 1}
    assert f"{MEM}: {bad[:64]}" in warnings(hard)


def test_a_factor_that_leads_beyond_what_can_be_counted_is_a_warning():
    rules = DemandRules(memory_factor=1024)
    assert limits({MEM: str(2**50)}, rules) == {}
    assert "beyond 2^53" in warnings({MEM: str(2**50)}, rules)


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
def test_keys_that_nobody_enforces_are_warned_about(key, advice):
    assert limits({key: "1"}) == {}
    assert advice in warnings({key: "1"})


@pytest.mark.parametrize(
    "spec",
    [
        {"scopes": ["BestEffort"]},
        {"scope_selector": ScopeSelector([ScopeRequirement("PriorityClass", "Exists")])},
    ],
)
def test_a_scoped_quota_is_not_applied_to_all_pods_and_says_so(spec):
    read = limits_of(quota({MEM: "1"}, **spec), RULES)
    assert read.limits == {}
    assert "scoped quotas are not enforced" in read.warnings[0]
    assert limits_of(quota({"pods": "1"}, **spec), RULES).warnings == ()


def test_native_resources_are_read_in_their_own_units_when_managed():
    rules = DemandRules(managed=("cpu", "memory"))
    hard = {"cpu": "1500m", "limits.cpu": "2", "requests.memory": "1Gi"}
    assert limits(hard, rules) == {"cpu": 1500, "limits.cpu": 2000, "requests.memory": 2**30}
