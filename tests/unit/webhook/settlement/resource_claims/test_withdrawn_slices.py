"""Allocations keep their charge and their cards while a driver has withdrawn its slices."""

import asyncio

import pytest
from support.claims.claim_settlement import charged_pod, claim_is_charged, settled_claims
from support.fakes.claimed_cluster import (
    BOUND,
    DRIVER,
    allocate,
    charge_of,
    claim_entry,
    make_claim,
)

from ledger.core.model.devices import Device
from ledger.core.model.state import Entry, Object
from ledger.kube.api.api_resources import CLAIMS, RESOURCE_SLICES
from webhook.settlement.observation_commands import ObservedObject
from webhook.settlement.resource_claims.recorded_allocation import with_recorded_allocation

WHOLE = {"nvidia.com/gpu": 1, "nvidia.com/gpucores": 100, "nvidia.com/gpumem": 81_920}


@pytest.mark.parametrize("generated", [False, True])
async def test_recount_keeps_an_allocation_whose_slice_is_gone(generated: bool) -> None:
    async with settled_claims(recount_seconds=5) as world:
        if generated:
            name = await charged_pod(world)
        else:
            name = "c"
            make_claim(world, name)
            await claim_is_charged(world, name, BOUND)

        def stored():
            return world.entry("p") if generated else claim_entry(world, name)

        given = {"request": "g", "driver": DRIVER, "pool": "n1", "device": "gpu-0"}
        status = {"allocation": {"devices": {"results": [given]}}}
        world.server.update(CLAIMS.name, "red", name, status=status)
        await world.until(lambda: charge_of(stored()) == WHOLE)
        before = stored().committed.devices
        assert before[0].card
        world.server.delete(RESOURCE_SLICES.name, "", "n1-slice")
        await asyncio.sleep(20)
        assert charge_of(stored()) == WHOLE
        assert stored().committed.devices == before

        # Another allocation counts as it is written.
        world.server.update(CLAIMS.name, "red", name, status={"allocation": None})
        await world.until(lambda: not stored().committed.devices)
        allocate(world, name, device="gpu-1")
        await world.until(lambda: charge_of(stored())["nvidia.com/gpumem"] == 4096)


@pytest.mark.parametrize("problem", ["", "unreadable"])
def test_resize_counts_while_the_slice_is_gone(problem: str) -> None:
    known = Device("c", "g", DRIVER, "n1", "gpu-0", node="k/n1", card="GPU-1")
    gone = Device("c", "g", DRIVER, "n1", "gpu-0")
    stored = Object("u", 1, {"nvidia.com/gpumem": 10, "requests.cpu": 1_000}, 0, devices=(known,))
    largest = {"nvidia.com/gpumem": 99, "requests.cpu": 4_000}
    demand = {} if problem else largest
    seen = ObservedObject("k/red", "pods/p", "u", 2, demand, problem=problem, devices=(gone,))
    kept = with_recorded_allocation(Entry(stored, (), stored.demand), seen)
    assert kept.devices == (known,)
    cpu = 1_000 if problem else 4_000
    assert kept.demand == {"nvidia.com/gpumem": 10, "requests.cpu": cpu}
