"""Demand of pods: HAMi resources, Kubernetes' rule for init containers, and denials."""

from pathlib import Path
from typing import Any

import msgspec
import pytest

from ledger.core.model.denials import Denial, Reason, sentence
from ledger.kube.api.objects import Pod
from ledger.kube.requests.demand_rules import DemandRules
from ledger.kube.requests.pod_demand import Demand, demand_of
from ledger.kube.vendors.vendors import NVIDIA

FIXTURES = Path(__file__).parents[4] / "fixtures" / "admission"
GPU, MEMORY, CORES = "nvidia.com/gpu", "nvidia.com/gpumem", "nvidia.com/gpucores"
PERCENTAGE = "nvidia.com/gpumem-percentage"


def container(limits: dict[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    """Return a container; keywords are further fields."""
    return {"name": "main", "resources": {"limits": limits or {}}, **more}


def pod(*containers: dict[str, Any], **spec: Any) -> Pod:
    """Return a pod of these containers."""
    return msgspec.convert({"spec": {"containers": list(containers), **spec}}, Pod)


def nvidia(**differently: Any) -> DemandRules:
    """Return rules with other resource names, factors or defaults for nvidia's cards."""
    vendor = {name: differently.pop(name) for name in [*differently] if hasattr(NVIDIA, name)}
    return DemandRules(vendors=(msgspec.structs.replace(NVIDIA, **vendor),), **differently)


def asked(limits: dict[str, Any], **rules: Any) -> dict[str, int]:
    """Return the demand of one container."""
    demand = demand_of(pod(container(limits)), nvidia(**rules))
    assert isinstance(demand, Demand), demand
    return demand.amounts


def refused(limits: dict[str, Any], **rules: Any) -> Denial:
    """Return why one container's request is refused."""
    denial = demand_of(pod(container(limits)), nvidia(**rules))
    assert isinstance(denial, Denial), denial
    return denial


def test_memory_and_cores_are_per_card_and_multiplied_out() -> None:
    assert asked({GPU: "2", MEMORY: "8192", CORES: "30"}) == {GPU: 2, MEMORY: 16_384, CORES: 60}


def test_canonical_and_plain_json_quantities_are_the_same() -> None:
    assert (
        asked({GPU: 1, MEMORY: "8k"}) == asked({GPU: "1", MEMORY: 8000}) == {GPU: 1, MEMORY: 8000}
    )


def test_amounts_are_sorted_and_hold_no_zeros() -> None:
    assert list(asked({MEMORY: "1", GPU: "1", CORES: "0"})) == [GPU, MEMORY]


@pytest.mark.parametrize("only", [{MEMORY: "4k"}, {CORES: "30", MEMORY: "1"}, {PERCENTAGE: "50"}])
def test_shares_without_a_count_are_of_one_card(only: dict[str, str]) -> None:
    assert asked(only)[GPU] == 1
    assert asked(only, default_count=2)[GPU] == 2


def test_a_count_alone_is_the_whole_card_with_all_its_cores() -> None:
    demand = demand_of(pod(container({GPU: "2"})), DemandRules())
    assert demand == Demand({GPU: 2, CORES: 200}, "spec.containers[0].resources", MEMORY)
    assert asked({GPU: "2"}, worst_card_memory=81_920) == {GPU: 2, MEMORY: 163_840, CORES: 200}


def test_cores_that_are_given_stay_on_a_whole_card() -> None:
    assert asked({GPU: "1", CORES: "40"}, worst_card_memory=1000)[CORES] == 40
    assert CORES not in asked({GPU: "1", CORES: "0"}, worst_card_memory=1000)


def test_a_percentage_is_held_at_the_worst_card_rounded_up() -> None:
    assert asked({GPU: "2", PERCENTAGE: "33"}, worst_card_memory=1001)[MEMORY] == 2 * 331


def test_a_hundred_percent_is_exclusive_and_less_is_not() -> None:
    assert asked({GPU: "1", PERCENTAGE: "100"}, worst_card_memory=1000)[CORES] == 100
    assert CORES not in asked({GPU: "1", PERCENTAGE: "99"}, worst_card_memory=1000)


def test_memory_wins_over_a_percentage() -> None:
    assert asked({GPU: "1", MEMORY: "500", PERCENTAGE: "50"}) == {GPU: 1, MEMORY: 500}


def test_zero_memory_is_the_same_as_none() -> None:
    assert asked({GPU: "1", MEMORY: "0"}, worst_card_memory=900) == asked(
        {GPU: "1"}, worst_card_memory=900
    )


def test_the_factor_applies_to_given_memory_and_not_to_the_default() -> None:
    assert asked({GPU: "1", MEMORY: "3"}, memory_factor=256)[MEMORY] == 768
    assert asked({GPU: "1"}, memory_factor=256, default_memory=500)[MEMORY] == 500


def test_default_cores_apply_where_none_are_given() -> None:
    assert asked({GPU: "2", MEMORY: "1"}, default_cores=25)[CORES] == 50


def test_requests_are_read_where_there_is_no_limit() -> None:
    resources = {"resources": {"requests": {GPU: "1", MEMORY: "5"}, "limits": {MEMORY: "7"}}}
    demand = demand_of(pod({"name": "main", **resources}), DemandRules())
    assert demand == Demand({GPU: 1, MEMORY: 7})


@pytest.mark.parametrize("limits", [{}, {"cpu": "1"}, {GPU: "0"}, {MEMORY: "0"}, {CORES: "0"}])
def test_who_asks_for_no_card_is_charged_nothing(limits: dict[str, str]) -> None:
    assert asked(limits) == {}


def test_other_names_can_be_configured() -> None:
    names = {"count": "amd.com/gpu", "memory": "amd.com/gpumem", "cores": "amd.com/gpucores"}
    assert asked({"amd.com/gpu": 1, "amd.com/gpumem": 5, GPU: 9}, **names) == {
        "amd.com/gpu": 1,
        "amd.com/gpumem": 5,
    }


@pytest.mark.parametrize("limits", [{GPU: 1, MEMORY: 2**40 + 1}, {GPU: 2, MEMORY: 2**39 + 1}])
def test_a_pod_that_asks_for_more_than_there_is_is_refused(limits: dict[str, Any]) -> None:
    denial = refused(limits)
    assert denial.reason is Reason.INVALID_QUANTITY
    assert f"which is beyond {2**40}" in denial.message


@pytest.mark.parametrize(
    ("limits", "reason"),
    [
        ({GPU: "1", MEMORY: "16Gi"}, Reason.INVALID_QUANTITY),
        ({GPU: "1", MEMORY: "500m"}, Reason.INVALID_QUANTITY),
        ({GPU: "1", MEMORY: "-5"}, Reason.INVALID_QUANTITY),
        ({GPU: "1", MEMORY: -5}, Reason.INVALID_QUANTITY),
        ({GPU: "1", MEMORY: str(2**53 + 1)}, Reason.INVALID_QUANTITY),
        ({GPU: "1", MEMORY: "lots"}, Reason.INVALID_QUANTITY),
        ({GPU: "500m"}, Reason.INVALID_COUNT),
        ({GPU: "1Ki"}, Reason.INVALID_COUNT),
        ({GPU: "-1"}, Reason.INVALID_COUNT),
        ({GPU: "1e30"}, Reason.INVALID_COUNT),
        ({GPU: "0", MEMORY: "8k"}, Reason.INVALID_COUNT),
        ({GPU: "1", PERCENTAGE: "150"}, Reason.INVALID_PERCENTAGE),
        ({GPU: "1", PERCENTAGE: "101"}, Reason.INVALID_PERCENTAGE),
        ({GPU: "1", PERCENTAGE: "0"}, Reason.INVALID_PERCENTAGE),
        ({GPU: "1", PERCENTAGE: "-1"}, Reason.INVALID_PERCENTAGE),
        ({GPU: "1", PERCENTAGE: "50500m"}, Reason.INVALID_QUANTITY),
        ({GPU: "1", CORES: "101"}, Reason.INVALID_CORES),
        ({GPU: "1", CORES: "-1"}, Reason.INVALID_CORES),
        ({GPU: "1", CORES: "1Ki"}, Reason.INVALID_QUANTITY),
    ],
)
def test_what_cannot_be_understood_is_refused_and_never_clamped(
    limits: dict[str, Any], reason: Reason
) -> None:
    denial = refused(limits)
    assert denial.reason is reason
    assert not denial.transient
    assert "container main" in denial.message
    assert denial.field.startswith("spec.containers[0].resources[nvidia.com/gpu")
    assert denial.remedy


def test_bytes_where_mebibytes_count_come_with_the_number_that_was_meant() -> None:
    denial = refused({GPU: "1", MEMORY: "16Gi"})
    assert denial.value == "16Gi"
    assert "write 16384 for 16Gi" in sentence(denial)


def test_denial_names_the_largest_number_when_a_number_is_too_large() -> None:
    for absurd in (str(2**53 + 1), "9" * 200):
        remedy = refused({GPU: "1", MEMORY: absurd}).remedy
        assert remedy == f"{MEMORY} counts MiB: write {2**40} at most"


def test_a_share_of_no_card_is_refused_when_there_is_no_default_count() -> None:
    assert refused({MEMORY: "8k"}, default_count=0).reason is Reason.INVALID_COUNT


def test_a_product_beyond_the_largest_amount_is_refused() -> None:
    assert refused({GPU: "4", MEMORY: str(2**52)}).reason is Reason.INVALID_QUANTITY


def test_an_absurd_value_is_cut_in_the_message() -> None:
    assert len(sentence(refused({GPU: "1", MEMORY: "9" * 100_000}))) < 400


def test_app_containers_add_up() -> None:
    two = pod(container({GPU: 1, MEMORY: 100}), container({GPU: 2, MEMORY: 10}))
    assert demand_of(two, DemandRules()) == Demand({GPU: 3, MEMORY: 120})


def test_init_containers_count_by_their_maximum() -> None:
    init = [container({GPU: 1, MEMORY: 500}), container({GPU: 2, MEMORY: 100})]
    some = pod(container({GPU: 1, MEMORY: 300}), initContainers=init)
    assert demand_of(some, DemandRules()) == Demand({GPU: 2, MEMORY: 500})


def test_a_sidecar_adds_to_later_init_containers_and_to_the_apps() -> None:
    init = [
        container({GPU: 1, MEMORY: 900}),
        container({GPU: 1, MEMORY: 100}, restartPolicy="Always"),
        container({GPU: 1, MEMORY: 850}),
    ]
    some = pod(container({GPU: 1, MEMORY: 300}), initContainers=init)
    assert demand_of(some, DemandRules()) == Demand({GPU: 2, MEMORY: 950})


def test_a_recorded_pod_with_init_container_and_sidecar() -> None:
    case = msgspec.json.decode((FIXTURES / "pod-create-init-and-sidecar.json").read_bytes())
    some = msgspec.convert(case["calls"][1]["review"]["request"]["object"], Pod)
    assert demand_of(some, DemandRules()) == Demand({GPU: 2, MEMORY: 9000})


def test_the_first_thing_wrong_is_the_one_reported() -> None:
    wrong = pod(container({GPU: "x"}), initContainers=[container({GPU: 1, CORES: "200"})])
    denial = demand_of(wrong, DemandRules())
    assert isinstance(denial, Denial)
    assert denial.field == f"spec.initContainers[0].resources[{CORES}]"


def test_managed_native_resources_have_requests_and_limits() -> None:
    some = pod({"name": "a", "resources": {"limits": {"cpu": "2"}, "requests": {"cpu": "500m"}}})
    assert demand_of(some, DemandRules(managed=("cpu", "memory"))) == Demand(
        {"cpu": 500, "limits.cpu": 2000, "requests.cpu": 500}
    )


def test_managed_extended_resources_are_whole_numbers() -> None:
    mig = "nvidia.com/mig-1g.10gb"
    assert asked({mig: "3"}, managed=(mig,)) == {mig: 3}
    assert refused({mig: "1Gi"}, managed=(mig,)).reason is Reason.INVALID_QUANTITY


def test_naming_the_cards_as_managed_changes_nothing() -> None:
    managed = (GPU, MEMORY, PERCENTAGE, CORES)
    assert asked({GPU: 1, PERCENTAGE: "50"}, managed=managed) == {GPU: 1}


def test_pod_level_resources_replace_the_sum_and_overhead_adds_to_it() -> None:
    some = pod(
        container({"cpu": "1"}),
        resources={"requests": {"cpu": "3"}},
        overhead={"cpu": "250m", "memory": "1Mi"},
    )
    demand = demand_of(some, DemandRules(managed=("cpu", "memory")))
    assert demand == Demand(
        {
            "cpu": 3250,
            "limits.cpu": 1250,
            "memory": 2**20,
            "requests.cpu": 3250,
            "requests.memory": 2**20,
        }
    )


def test_a_wrong_overhead_names_its_field() -> None:
    denial = demand_of(pod(overhead={"cpu": "-1"}), DemandRules(managed=("cpu",)))
    assert isinstance(denial, Denial)
    assert denial.field == "spec.overhead[cpu]"


def test_a_pod_without_containers_asks_for_nothing() -> None:
    assert demand_of(Pod(), DemandRules(managed=("cpu",))) == Demand({})
