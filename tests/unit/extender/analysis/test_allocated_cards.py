"""Allocations of resource claims in replays and suggestions: neither arrivals nor evictable."""

from msgspec.structs import replace
from support.devices.device_site import NODE, TEAM, device, device_site

from extender.analysis.arrivals import ArrivalRecorder
from extender.analysis.fit_suggestions import evictions_on
from extender.fit.inventory_fit import FitPreferences, InventoryFit
from extender.inventory.cluster_inventory import ClusterInventory
from extender.inventory.unrecorded_card_use import UsageOverlay
from extender.scheduler_api.scheduling_request import request_for
from ledger.core.model.cards import Phase, Share
from ledger.core.model.commands import RegisterCards
from ledger.kube.api.objects import Pod
from ledger.kube.requests.device_requests import (
    ContainerDeviceRequests,
    DeviceRequest,
    PodDeviceRequest,
)

CLAIM = "resourceclaims.resource.k8s.io/c"


async def test_allocation_does_not_arrive_and_its_card_is_left_out():
    async with device_site() as site:
        recorder = ArrivalRecorder("east", site.writer.state)
        site.writer.subscribe(lambda record: recorder.note(site.writer.state, record))
        await site.announce("GPU-0", "GPU-1")
        await site.observe(CLAIM, device())
        await site.place("p", Share("GPU-1", 1_000, 10))
        await site.settled()
        cards = tuple(replace(card, slots=9) for card in site.writer.state.nodes[NODE].cards)
        await site.tell(RegisterCards(NODE, "gpuledger", cards, version=9))
        later = ArrivalRecorder("east", site.writer.state)
        for made in (recorder, later):
            assert [arrival.place for arrival in made.arrivals()] == [(TEAM, "pods/p")]
            assert {uuid: card.cordoned for uuid, card in made.fleet["n1"].items()} == {
                "GPU-0": True,
                "GPU-1": False,
            }


async def test_claim_is_not_suggested_for_eviction():
    """After its slice is gone, the card of a claim would be free without the claim."""
    async with device_site() as site:
        await site.announce("GPU-0")
        await site.observe(CLAIM, device(memory=16_000))
        await site.settled()
        state = site.writer.state
        inventory = ClusterInventory("east", UsageOverlay())
        inventory.load(state)
        wanted = DeviceRequest("nvidia", 1, 8_000, 0, 0, exclusive=False)
        wish = PodDeviceRequest((ContainerDeviceRequests("main", Phase.APP, (wanted,)),))
        fit = InventoryFit(inventory, FitPreferences(), clock=lambda: 0.0)
        request = request_for(Pod(), wish, "east")
        assert evictions_on(fit, request, "n1", inventory.residents("n1")) == []


async def test_placement_of_a_claim_does_not_mean_another_extender():
    async with device_site() as site:
        inventory = ClusterInventory("east", UsageOverlay())
        inventory.load(site.writer.state)
        site.writer.subscribe(lambda record: inventory.follow(site.writer.state, record))
        await site.announce("GPU-0")
        await site.observe(CLAIM, device())
        await site.settled()
        assert site.placed(CLAIM) is not None
        assert (inventory.surprises, inventory.reloads) == (0, 0)
        await site.place("p", Share("GPU-0", 1_000, 10))
        assert inventory.surprises == 1
