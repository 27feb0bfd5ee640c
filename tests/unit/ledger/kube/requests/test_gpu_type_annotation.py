"""Types of cards: what a pod that names one is charged, and what is refused."""

from typing import Any

import msgspec
import pytest

from ledger.core.model.denials import Denial, Reason, sentence
from ledger.kube.api.objects import Container, Pod
from ledger.kube.requests import gpu_type_annotation
from ledger.kube.requests.demand_rules import DemandRules
from ledger.kube.requests.gpu_type_annotation import NAMED_MAX, CardType
from ledger.kube.requests.pod_demand import Demand, demand_of
from ledger.kube.vendors.vendors import select_vendors

GPU, MEMORY, CORES = "nvidia.com/gpu", "nvidia.com/gpumem", "nvidia.com/gpucores"
KEY, OTHER_KEY = gpu_type_annotation.ANNOTATIONS
TYPES = (CardType("v100", 32_768), CardType("a100", 81_920), CardType("t4"))
RULES = DemandRules(types=TYPES)


def pod(limits: dict[str, Any], **annotations: str) -> Pod:
    """Return a pod of one container; `key` and `other` are its annotations."""
    named = {KEY: annotations.get("key"), OTHER_KEY: annotations.get("other")}
    metadata = {"annotations": {key: text for key, text in named.items() if text is not None}}
    containers = [{"name": "main", "resources": {"limits": limits}}]
    return msgspec.convert({"metadata": metadata, "spec": {"containers": containers}}, Pod)


def asked(manifest: Pod, rules: DemandRules = RULES) -> dict[str, int]:
    demand = demand_of(manifest, rules)
    assert isinstance(demand, Demand), demand
    return demand.amounts


@pytest.mark.parametrize("text", ["v100", "V100", " V100 ", "V100,", "v100,V100"])
def test_a_pod_is_charged_on_the_keys_of_its_type_as_well(text: str) -> None:
    assert asked(pod({GPU: 2, MEMORY: 1000, CORES: 30}, key=text)) == {
        GPU: 2,
        CORES: 60,
        MEMORY: 2000,
        f"v100.{GPU}": 2,
        f"v100.{CORES}": 60,
        f"v100.{MEMORY}": 2000,
    }


def test_a_pod_that_may_run_on_several_types_is_charged_on_each() -> None:
    charged = asked(pod({GPU: 1, MEMORY: 5}, key="v100", other="a100"))
    assert charged == {
        GPU: 1,
        MEMORY: 5,
        f"a100.{GPU}": 1,
        f"a100.{MEMORY}": 5,
        f"v100.{GPU}": 1,
        f"v100.{MEMORY}": 5,
    }


def test_whole_cards_and_percentages_are_of_the_types_size() -> None:
    assert asked(pod({GPU: 2}, key="v100"))[MEMORY] == 2 * 32_768
    half = asked(pod({GPU: 1, "nvidia.com/gpumem-percentage": 50}, key="v100,a100"))
    assert half[MEMORY] == half[f"v100.{MEMORY}"] == 40_960


def test_a_type_of_unknown_size_is_held_at_the_worst_card() -> None:
    worst = msgspec.structs.replace(RULES, worst_card_memory=100_000)
    assert asked(pod({GPU: 1}, key="v100,t4"), worst)[MEMORY] == 100_000
    demand = demand_of(pod({GPU: 1}, key="t4"), RULES)
    assert isinstance(demand, Demand)
    assert demand.unknown == MEMORY
    assert f"t4.{MEMORY}" not in demand.amounts
    assert demand.amounts[f"t4.{GPU}"] == 1


def test_an_unknown_type_is_refused_with_the_known_ones() -> None:
    denial = demand_of(pod({GPU: 1}, other="v100,H100"), RULES)
    assert isinstance(denial, Denial)
    assert denial.reason is Reason.UNKNOWN_GPU_TYPE
    assert (denial.field, denial.value) == (f"metadata.annotations[{OTHER_KEY}]", "H100")
    assert "Write one of v100, a100, t4" in sentence(denial)
    assert not denial.transient


def test_a_wrong_quantity_goes_before_a_wrong_type() -> None:
    manifest = pod({GPU: 1}, key="h100")
    wrong = msgspec.convert({"resources": {"limits": {GPU: "x"}}}, Container)
    containers = [*(manifest.spec.containers or ()), wrong]
    spec = msgspec.structs.replace(manifest.spec, containers=containers)
    denial = demand_of(msgspec.structs.replace(manifest, spec=spec), RULES)
    assert isinstance(denial, Denial)
    assert denial.reason is Reason.INVALID_COUNT


def test_the_size_of_a_type_goes_before_that_of_the_vendors_cards() -> None:
    rules = DemandRules(vendors=select_vendors(["kunlun-vxpu"]), types=TYPES)
    assert asked(pod({"kunlunxin.com/vxpu": 1}, key="v100"), rules)[
        "kunlunxin.com/vxpu-memory"
    ] == (32_768)


def test_types_are_refused_when_a_pod_names_too_many() -> None:
    many = tuple(CardType(f"t{number}") for number in range(NAMED_MAX + 1))
    rules = DemandRules(types=many)
    names = [card_type.name for card_type in many]
    assert (
        len(asked(pod({GPU: 1, MEMORY: 1}, key=",".join(names[:-1])), rules)) == 2 + 2 * NAMED_MAX
    )
    assert isinstance(demand_of(pod({GPU: 1}, key=",".join(names)), rules), Denial)


@pytest.mark.parametrize("text", ["h100", "v100"])
def test_who_asks_for_no_cards_may_name_any_type(text: str) -> None:
    rules = msgspec.structs.replace(RULES, managed=("cpu",))
    assert asked(pod({"cpu": "1"}, key=text), rules) == {
        "cpu": 1000,
        "limits.cpu": 1000,
        "requests.cpu": 1000,
    }


def test_type_annotation_is_ignored_when_no_types_are_known() -> None:
    assert asked(pod({GPU: 1, MEMORY: 1}, key="h100"), DemandRules()) == {GPU: 1, MEMORY: 1}


def test_an_empty_annotation_is_as_good_as_none() -> None:
    assert asked(pod({GPU: 1, MEMORY: 1}, key="", other=" , ")) == {GPU: 1, MEMORY: 1}


def test_the_annotations_are_a_setting() -> None:
    rules = DemandRules(types=TYPES, type_annotations=("acme.example/gpu-type",))
    assert asked(pod({GPU: 1, MEMORY: 1}, key="v100"), rules) == {GPU: 1, MEMORY: 1}
    manifest = msgspec.convert(
        {
            "metadata": {"annotations": {"acme.example/gpu-type": "V100"}},
            "spec": {"containers": [{"resources": {"limits": {GPU: 1, MEMORY: 1}}}]},
        },
        Pod,
    )
    assert asked(manifest, rules)[f"v100.{MEMORY}"] == 1


def test_types_are_read_with_and_without_the_size_of_a_card() -> None:
    assert gpu_type_annotation.parse_types(("V100=32768", "a100-80g")) == (
        CardType("v100", 32_768),
        CardType("a100-80g"),
    )


@pytest.mark.parametrize("text", ["", "v100=", "v100=32Gi", "v 100", "-a", "v100=99999999", "a.b"])
def test_a_type_that_is_none_is_an_error_with_an_example(text: str) -> None:
    with pytest.raises(ValueError, match=r"for example v100=32768"):
        gpu_type_annotation.parse_types((text,))


def test_a_type_given_twice_is_an_error() -> None:
    with pytest.raises(ValueError, match="v100 is given twice"):
        gpu_type_annotation.parse_types(("v100", "V100=5"))
