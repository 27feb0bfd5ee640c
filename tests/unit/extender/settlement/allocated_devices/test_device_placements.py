"""Allocations of resource claims on the accounts of cards: placed, changed and ended as facts."""

import msgspec
import pytest
from support.devices.device_site import NODE, TEAM, DeviceSite, device
from support.fakes.apiserver import pod_body

from extender.settlement.allocated_devices import device_placements
from extender.settlement.allocation_annotations import AllocationAnnotations
from extender.settlement.placement_reconciler import PlacementReconciler
from ledger.core.model.cards import HAMI, Share, Stage
from ledger.core.model.commands import End, Unplace
from ledger.kube.api.cluster_ports import Changed
from ledger.kube.api.objects import Pod

CLAIM = "resourceclaims.resource.k8s.io/c"


@pytest.mark.parametrize("key", [CLAIM, "pods/p"])
async def test_allocation_is_booked_on_the_card_of_its_holder(site: DeviceSite, key: str):
    await site.announce("GPU-0")
    await site.observe(key, device())
    await site.settled()
    placed = site.placed(key)
    assert placed is not None
    assert placed.observed
    assert [part.container for part in placed.parts] == ["resourceclaims/c"]
    assert site.used("GPU-0") == (8_000, 30, 1)


async def test_placement_does_not_change_the_charge_of_quotas(site: DeviceSite):
    await site.announce("GPU-0")
    await site.observe("pods/p", device(), device("GPU-0", share="s2"))
    await site.settled()
    entry = site.writer.state.entry(TEAM, "pods/p")
    assert entry is not None
    assert entry.charge == {"nvidia.com/gpu": 2}


async def test_cleared_allocation_frees_the_card(site: DeviceSite):
    await site.announce("GPU-0")
    await site.observe(CLAIM, device())
    await site.settled()
    await site.observe(CLAIM)
    await site.settled()
    assert site.placed(CLAIM) is None
    assert site.used("GPU-0") == (0, 0, 0)


async def test_end_of_the_holder_frees_the_card(site: DeviceSite):
    await site.announce("GPU-0")
    await site.observe(CLAIM, device())
    await site.settled()
    await site.tell(End(TEAM, CLAIM, "u", 9, "deleted"))
    assert site.used("GPU-0") == (0, 0, 0)
    await site.settled()


async def test_second_allocation_of_a_pod_is_added(site: DeviceSite):
    await site.announce("GPU-0", "GPU-1")
    await site.observe("pods/p", device())
    await site.settled()
    await site.observe("pods/p", device(), device("GPU-1", claim="d"))
    await site.settled()
    assert site.used("GPU-0") == (8_000, 30, 1)
    assert site.used("GPU-1") == (8_000, 30, 1)


async def test_allocations_in_quick_order_end_with_the_last(site: DeviceSite):
    """The second change is seen while the command of the first is on its way."""
    await site.announce("GPU-0", "GPU-1")
    site.gate.clear()
    await site.observe("pods/p", device())
    await site.placements.settle()
    await site.observe("pods/p", device("GPU-1"))
    await site.placements.settle()
    site.gate.set()
    await site.settled()
    assert site.used("GPU-0") == (0, 0, 0)
    assert site.used("GPU-1") == (8_000, 30, 1)


async def test_card_that_is_announced_later_is_booked_then(site: DeviceSite):
    await site.observe(CLAIM, device())
    await site.settled()
    assert site.placed(CLAIM) is None
    await site.announce("GPU-0")
    await site.settled()
    assert site.used("GPU-0") == (8_000, 30, 1)


async def test_ended_objects_leave_room_for_others_on_unknown_cards(
    site: DeviceSite, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(device_placements, "UNKNOWN_MAX", 1)
    await site.observe("pods/p", device())
    await site.settled()
    await site.tell(End(TEAM, "pods/p", "u", 9, "deleted"))
    await site.observe(CLAIM, device(), uid="v")
    await site.settled()
    await site.announce("GPU-0")
    await site.settled()
    assert site.placed(CLAIM) is not None


async def test_devices_that_name_no_card_place_nothing(site: DeviceSite):
    await site.announce("GPU-0")
    await site.observe(CLAIM, device(card=""), device(node=""), device(admin=True))
    await site.settled()
    assert site.placed(CLAIM) is None


async def test_new_active_replica_finds_allocations_of_before(site: DeviceSite):
    site.placements.follow = lambda event: None
    await site.announce("GPU-0")
    await site.observe(CLAIM, device())
    await site.settled()
    assert site.placed(CLAIM) is None
    site.begin()
    await site.placements.find()
    await site.settled()
    assert site.used("GPU-0") == (8_000, 30, 1)


async def test_cards_from_an_extender_stay_with_the_pod(site: DeviceSite):
    await site.announce("GPU-0", "GPU-1")
    await site.place("u", Share("GPU-1", 1_000, 10))
    await site.observe("pods/u", device(), uid="u")
    await site.settled()
    assert site.used("GPU-0") == (0, 0, 0)
    assert site.used("GPU-1") == (1_000, 10, 1)
    await site.tell(Unplace(TEAM, "pods/u", "u", NODE, "unbound", bound=True))
    await site.settled()
    assert site.used("GPU-0") == (8_000, 30, 1)


async def test_allocation_does_not_keep_a_node_of_hami_busy(site: DeviceSite):
    await site.announce("GPU-0", "GPU-1", keeper=HAMI)
    await site.observe(CLAIM, device())
    await site.settled()
    placed = site.placed(CLAIM)
    assert placed is not None
    assert placed.stage == Stage.ALLOCATED
    await site.place("other", Share("GPU-1", 1_000, 10))


async def test_settled_objects_need_no_further_commands(site: DeviceSite):
    await site.announce("GPU-0")
    await site.observe(CLAIM, device())
    await site.settled()
    position = site.writer.state.position
    await site.placements.find()
    await site.settled()
    assert site.writer.state.position == position


async def test_running_pod_with_claims_does_not_drift(site: DeviceSite):
    """Its annotations name no cards, which would be drift of a pod that an extender placed."""
    await site.announce("GPU-0")
    await site.observe("pods/p", device())
    await site.settled()
    reconciler = PlacementReconciler(site.context, AllocationAnnotations(site.context))
    await reconciler.take(Changed(7, running_pod(node="n1")))
    await reconciler.take(Changed(8, running_pod(node="n2")))
    await site.commands.flush()
    assert site.counted == []
    assert reconciler.unaccounted == {}
    assert site.used("GPU-0") == (8_000, 30, 1)


def running_pod(node: str) -> Pod:
    body = pod_body("p")
    body["metadata"] |= {"namespace": "team", "uid": "u", "resourceVersion": "7"}
    body["spec"]["nodeName"] = node
    return msgspec.convert(body, Pod)
