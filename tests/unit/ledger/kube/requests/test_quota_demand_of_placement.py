"""Amounts that a pod is charged once its cards are known."""

from typing import Any

import msgspec

from ledger.core.model.cards import Card, Part, Phase, Share
from ledger.kube.api.objects import Pod
from ledger.kube.requests.demand_rules import DemandRules
from ledger.kube.requests.device_request_parser import device_request_of
from ledger.kube.requests.device_requests import PodDeviceRequest
from ledger.kube.requests.gpu_type_annotation import CardType
from ledger.kube.requests.placements.quota_demand_of_placement import (
    demand_of_placement,
    placement_overrides,
)
from ledger.kube.requests.pod_demand import Demand, demand_of
from ledger.kube.vendors.vendors import select_vendors

GPU, MEMORY, CORES = "nvidia.com/gpu", "nvidia.com/gpumem", "nvidia.com/gpucores"
PERCENTAGE = "nvidia.com/gpumem-percentage"
RULES = DemandRules()
CARDS = (
    Card("small", 0, "T4", 16_000, 100, 10),
    Card("large", 1, "A100", 80_000, 100, 10),
    Card("other", 2, "Z100", 32_000, 100, 10, "hygon"),
)


def pod(*containers: tuple[str, dict[str, Any], str], **annotations: str) -> Pod:
    """Return a pod of `(name, limits, phase)`, the phase `init`, `side` or `app`."""
    spec: dict[str, list[Any]] = {"initContainers": [], "containers": []}
    for name, limits, phase in containers:
        container: dict[str, Any] = {"name": name, "resources": {"limits": limits}}
        if phase == "side":
            container["restartPolicy"] = "Always"
        spec["containers" if phase == "app" else "initContainers"].append(container)
    return msgspec.convert({"metadata": {"annotations": annotations}, "spec": spec}, Pod)


def parsed(manifest: Pod, rules: DemandRules = RULES) -> PodDeviceRequest:
    request = device_request_of(manifest, rules)
    assert isinstance(request, PodDeviceRequest), request
    return request


def test_overrides_are_empty_when_all_amounts_were_known() -> None:
    request = parsed(pod(("a", {GPU: 2, MEMORY: 500, CORES: 30}, "app")))
    parts = (Part("a", Phase.APP, (Share("small", 500, 30), Share("large", 500, 30))),)
    assert placement_overrides(parts, request, RULES, CARDS) == {}


def test_percentage_is_charged_by_its_cards_when_placed() -> None:
    request = parsed(pod(("a", {GPU: 2, PERCENTAGE: 50, CORES: 30}, "app")))
    parts = (Part("a", Phase.APP, (Share("small", 8000, 30), Share("large", 40_000, 30))),)
    assert placement_overrides(parts, request, RULES, CARDS) == {MEMORY: 48_000}


def test_known_amounts_add_to_the_placed_amounts_of_other_containers() -> None:
    request = parsed(pod(("a", {MEMORY: 500}, "app"), ("b", {PERCENTAGE: 10}, "app")))
    parts = (
        Part("a", Phase.APP, (Share("small", 500, 0),)),
        Part("b", Phase.APP, (Share("large", 8000, 0),)),
    )
    assert placement_overrides(parts, request, RULES, CARDS) == {MEMORY: 8500}


def test_init_containers_count_by_peak_with_sidecars_until_they_end() -> None:
    request = parsed(
        pod(
            ("first", {PERCENTAGE: 90}, "init"),
            ("side", {PERCENTAGE: 10}, "side"),
            ("second", {PERCENTAGE: 50}, "init"),
            ("main", {PERCENTAGE: 20}, "app"),
        )
    )
    parts = (
        Part("first", Phase.INIT, (Share("small", 14_400, 0),)),
        Part("side", Phase.SIDECAR, (Share("large", 8000, 0),)),
        Part("second", Phase.INIT, (Share("large", 40_000, 0),)),
        Part("main", Phase.APP, (Share("large", 16_000, 0),)),
    )
    assert placement_overrides(parts, request, RULES, CARDS) == {MEMORY: 48_000}
    assert placement_overrides(parts, request, RULES, CARDS, initialised=True) == {MEMORY: 24_000}


def test_init_share_is_charged_as_zero_when_its_container_has_ended() -> None:
    request = parsed(pod(("setup", {PERCENTAGE: 10}, "init"), ("main", {}, "app")))
    parts = (Part("setup", Phase.INIT, (Share("small", 1600, 0),)), Part("main", Phase.APP))
    assert placement_overrides(parts, request, RULES, CARDS, initialised=True) == {MEMORY: 0}


def test_instance_is_charged_in_full_when_larger_than_the_request() -> None:
    request = parsed(pod(("a", {MEMORY: 8000}, "app")))
    instance = Share("large", 10_240, 14, profile="1g.10gb", start=0, size=1)
    assert placement_overrides((Part("a", Phase.APP, (instance,)),), request, RULES, CARDS) == {
        CORES: 14,
        MEMORY: 10_240,
    }


def test_the_types_that_a_pod_is_charged_as_stand_as_well() -> None:
    rules = DemandRules(types=(CardType("a100", 81_920),))
    request = parsed(
        pod(("a", {PERCENTAGE: 10}, "app"), **{"nvidia.com/use-gputype": "a100"}), rules
    )
    parts = (Part("a", Phase.APP, (Share("large", 8000, 0),)),)
    assert placement_overrides(parts, request, rules, CARDS) == {
        f"a100.{MEMORY}": 8000,
        MEMORY: 8000,
    }


def test_each_vendors_cards_count_on_its_own_resources() -> None:
    rules = DemandRules(vendors=select_vendors(["nvidia", "hygon"]))
    limits = {MEMORY: 5, "hygon.com/dcunum": 1, "hygon.com/dcucores": 10}
    request = parsed(pod(("a", limits, "app")), rules)
    shares = (Share("small", 5, 0), Share("other", 32_000, 10))
    parts = (Part("a", Phase.APP, shares),)
    assert placement_overrides(parts, request, rules, CARDS) == {"hygon.com/dcumem": 32_000}


def test_a_card_that_is_gone_counts_as_one_of_the_vendor_that_was_asked() -> None:
    request = parsed(pod(("a", {PERCENTAGE: 50}, "app")))
    parts = (Part("a", Phase.APP, (Share("vanished", 700, 0),)),)
    assert placement_overrides(parts, request, RULES, CARDS) == {MEMORY: 700}


def test_parts_as_they_were_asked_for_amount_to_the_demand() -> None:
    manifest = pod(
        ("first", {GPU: 2, MEMORY: 700, CORES: 90}, "init"),
        ("side", {MEMORY: 10, CORES: 5}, "side"),
        ("main", {MEMORY: 500, CORES: 7}, "app"),
        **{"nvidia.com/use-gputype": "a100"},
    )
    rules = DemandRules(types=(CardType("a100"),))
    parts = (
        Part("first", Phase.INIT, (Share("small", 700, 90), Share("large", 700, 90))),
        Part("side", Phase.SIDECAR, (Share("large", 10, 5),)),
        Part("main", Phase.APP, (Share("large", 500, 7),)),
    )
    demand = demand_of(manifest, rules)
    assert isinstance(demand, Demand)
    assert demand_of_placement(parts, parsed(manifest, rules), rules, CARDS) == demand.amounts
