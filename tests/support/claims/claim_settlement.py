"""Claim settlement: running settlement in a cluster with claims, and its usual first steps."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from support.fakes.claimed_cluster import (
    BOUND,
    GIVEN,
    allocate,
    charge_of,
    claim_entry,
    generated,
    make_template,
    pod_charge,
    reviewed_pod,
    serve_claims,
)
from support.harness.settlement import World, full_world, settling

from ledger.core.model.amounts import Amounts
from ledger.log.memory_log import MemoryStore


@asynccontextmanager
async def settled_claims(
    *,
    settle_seconds: float = 4.0,
    recount_seconds: float = 600.0,
    template: bool = True,
    store: MemoryStore | None = None,
) -> AsyncIterator[World]:
    """Run settlement in a cluster that serves claims, and yield its world when all is listed."""
    async with full_world(
        settle_seconds=settle_seconds, recount_seconds=recount_seconds, store=store
    ) as world:
        serve_claims(world)
        if template:
            make_template(world)
        async with settling(world):
            await world.synced()
            yield world


async def pod_is_charged(world: World, amounts: Amounts) -> None:
    """Wait until the pod `p` is charged these amounts."""
    await world.until(lambda: pod_charge(world, "p") == amounts)


async def claim_is_charged(world: World, name: str, amounts: Amounts) -> None:
    """Wait until a claim is charged these amounts at its own key."""
    await world.until(lambda: charge_of(claim_entry(world, name)) == amounts)


async def charged_pod(world: World) -> str:
    """Write the pod `p`, which was reviewed, and its claim; return the claim, once it is charged.

    The pod is then charged `BOUND`.
    """
    claim = generated(world, await reviewed_pod(world))
    await pod_is_charged(world, BOUND)
    return claim


async def allocated_pod(world: World) -> str:
    """Write such a pod whose claim is allocated at once; return the claim, once it is settled.

    The pod is then charged `GIVEN`.
    """
    claim = generated(world, await reviewed_pod(world))
    allocate(world, claim)
    await pod_is_charged(world, GIVEN)
    return claim
