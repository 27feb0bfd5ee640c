"""Cards that two mechanisms gave away: counted once, named, and gone when they are settled."""

from structlog.testing import capture_logs
from support.claims.kept_slices import NVIDIA
from support.devices.device_site import TEAM, DeviceSite, device

from ledger.core.model.cards import Share
from ledger.core.model.commands import End

CLAIM = "resourceclaims.resource.k8s.io/c"


async def test_placed_pod_on_a_card_of_a_slice_is_drift_once(site: DeviceSite):
    await site.announce("GPU-0", "GPU-1")
    await site.place("p", Share("GPU-0", 1_000, 10))
    site.offered.set("n1", dict.fromkeys({"GPU-0", "GPU-1"}, NVIDIA))
    with capture_logs() as logs:
        await site.overlaps.look()
        await site.overlaps.look()
    assert site.counted == [("placement_drift_total", "offered")]
    assert [log["event"] for log in logs] == ["cards_overlap"]
    assert [(item.kind, item.card, item.pods) for item in site.overlaps.standing] == [
        ("offered", "GPU-0", ("team/p",))
    ]
    assert "card GPU-0 of node n1 is in a ResourceSlice" in site.overlaps.warnings()[0]


async def test_card_without_a_slice_does_not_drift(site: DeviceSite):
    await site.announce("GPU-0", "GPU-1")
    await site.place("p", Share("GPU-0", 1_000, 10))
    site.offered.set("n1", dict.fromkeys({"GPU-1"}, NVIDIA))
    site.offered.set("n2", dict.fromkeys({"GPU-0"}, NVIDIA))
    await site.overlaps.look()
    assert site.overlaps.standing == ()


async def test_overlap_ends_with_its_pod_and_is_counted_again(site: DeviceSite):
    await site.announce("GPU-0")
    site.offered.set("n1", dict.fromkeys({"GPU-0"}, NVIDIA))
    for name in ("p", "q"):
        await site.place(name, Share("GPU-0", 1_000, 10))
        await site.overlaps.look()
        await site.tell(End(TEAM, f"pods/{name}", name, 0, "deleted"))
        await site.overlaps.look()
        assert site.overlaps.standing == ()
    assert site.counted == [("placement_drift_total", "offered")] * 2


async def test_allocations_within_a_card_do_not_drift(site: DeviceSite):
    await site.announce("GPU-0")
    site.offered.set("n1", dict.fromkeys({"GPU-0"}, NVIDIA))
    await site.observe(CLAIM, device(), device(share="s2"))
    await site.settled()
    await site.overlaps.look()
    assert site.overlaps.standing == ()


async def test_more_claims_than_slots_do_not_drift(site: DeviceSite):
    await site.announce("GPU-0")
    shares = [device(share=f"s{number}", memory=1, cores=1) for number in range(9)]
    await site.observe(CLAIM, *shares)
    await site.settled()
    assert site.used("GPU-0") == (9, 9, 9)
    await site.overlaps.look()
    assert site.overlaps.standing == ()


async def test_allocation_on_a_full_card_is_drift(site: DeviceSite):
    await site.announce("GPU-0")
    await site.place("p", Share("GPU-0", 12_000, 10))
    await site.observe(CLAIM, device())
    await site.settled()
    await site.overlaps.look()
    assert [item[:3] for item in site.overlaps.standing] == [("overfull", "east/n1", "GPU-0")]
    assert site.overlaps.standing[0].pods == ("team/c", "team/p")
    assert site.counted == [("placement_drift_total", "overfull")]


async def test_warnings_name_three_cards_and_count_the_others(site: DeviceSite):
    uuids = [f"GPU-{number}" for number in range(4)]
    await site.announce(*uuids)
    for uuid in uuids:
        await site.place(uuid, Share(uuid, 1, 1))
    site.offered.set("n1", dict.fromkeys(uuids, NVIDIA))
    await site.overlaps.look()
    assert len(site.overlaps.warnings()) == 4
    assert site.overlaps.warnings()[-1] == "and 1 more cards overlap"


async def test_lost_card_with_an_allocation_does_not_drift(site: DeviceSite):
    """Its limits are 0, because its node announces it no longer, and its claim stays on it."""
    await site.announce("GPU-0", "GPU-1")
    await site.observe(CLAIM, device())
    await site.settled()
    await site.announce("GPU-1")
    await site.overlaps.look()
    assert site.placed(CLAIM) is not None
    assert site.overlaps.standing == ()


async def test_new_active_replica_finds_overlaps_of_before(site: DeviceSite):
    await site.announce("GPU-0")
    await site.place("p", Share("GPU-0", 12_000, 10))
    await site.observe(CLAIM, device())
    await site.settled()
    site.begin()
    await site.overlaps.look()
    assert [item.kind for item in site.overlaps.standing] == ["overfull"]
