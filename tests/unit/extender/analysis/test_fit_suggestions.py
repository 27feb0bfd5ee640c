"""Which pods would have to leave a node."""

from typing import Any

import pytest
from support.builders.card_nodes import NODE, TEAM, after, card, place, pod, register, share

from extender.analysis.fit_suggestions import evictions_on
from extender.fit.inventory_fit import FitPreferences, InventoryFit
from extender.inventory.cluster_inventory import ClusterInventory
from extender.inventory.unrecorded_card_use import UsageOverlay
from extender.scheduler_api.scheduling_request import request_for
from ledger.core.model.cards import Phase
from ledger.kube.api.objects import Pod
from ledger.kube.requests.device_requests import (
    ContainerDeviceRequests,
    DeviceRequest,
    DeviceSelector,
    PodDeviceRequest,
)


def leaving(memory: int, *held: tuple[int, int], uuids: tuple[str, ...] = ()) -> list[str]:
    """Return the evicted ones among pods with `(card, MiB)` on two cards of 40 MiB."""
    steps: list[Any] = [register(card(0), card(1))]
    for number, (on, amount) in enumerate(held):
        steps += [pod(f"p{number}"), place(f"p{number}", share(on, amount))]
    state = after(*steps)
    inventory = ClusterInventory("c1", UsageOverlay())
    inventory.load(state)
    choice = DeviceSelector(use_uuids=uuids)
    wanted = DeviceRequest("nvidia", 1, memory, 0, 0, False, choice)
    wish = PodDeviceRequest((ContainerDeviceRequests("main", Phase.APP, (wanted,)),))
    there = {place: state.namespaces[TEAM].placed[place[1]] for place in state.residents[NODE]}
    fit = InventoryFit(inventory, FitPreferences(), clock=lambda: 0.0)
    return [
        evicted.pod for evicted in evictions_on(fit, request_for(Pod(), wish, "c1"), "n1", there)
    ]


@pytest.mark.parametrize(
    ("memory", "held", "expected"),
    [
        (25, [(0, 15), (0, 20), (1, 40)], ["p1"]),
        (20, [(0, 10), (0, 10), (0, 20), (1, 40)], ["p2"]),
        (40, [(0, 10), (0, 30), (1, 40)], ["p2"]),
    ],
)
def test_one_pod_leaves_where_one_suffices(
    memory: int, held: list[tuple[int, int]], expected: list[str]
) -> None:
    assert leaving(memory, *held) == expected


def test_pod_that_is_not_in_the_way_stays() -> None:
    assert leaving(35, (1, 5), (0, 10), (0, 20), uuids=("GPU-0",)) == ["p1", "p2"]


def test_no_pod_leaves_when_that_does_not_help() -> None:
    assert leaving(41, (0, 10), (1, 10)) == []
