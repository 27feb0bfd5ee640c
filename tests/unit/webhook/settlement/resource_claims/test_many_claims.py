"""The work of settling many allocations: one command each, and less than a second for 1,000."""

import asyncio
import time

import pytest
from support.claims.claim_settlement import settled_claims
from support.fakes.claimed_cluster import (
    BOUND,
    GIVEN,
    allocate,
    generated,
    pod_charge,
    reviewed_pod,
)
from support.harness.settlement import DEADLINE_SECONDS, World

from ledger.kube.api.api_resources import CLAIMS

PODS = 1_000
PROCESSOR_SECONDS = 1.0


async def all_charged(world: World, amounts: dict[str, int]) -> None:
    """Wait until all pods are charged; they are looked at rarely, because that is measured, too."""
    async with asyncio.timeout(DEADLINE_SECONDS):
        left = PODS
        while left:
            await asyncio.sleep(0.5)
            left = sum(pod_charge(world, f"p{number}") != amounts for number in range(PODS))


@pytest.mark.alone
async def test_thousand_allocations_are_settled_in_a_second():
    async with settled_claims(settle_seconds=60) as world:
        pods = [await reviewed_pod(world, f"p{number}") for number in range(PODS)]
        claims = [generated(world, pod) for pod in pods]
        await all_charged(world, BOUND)
        before, started = len(world.asked), time.process_time()
        for claim in claims:
            finalizers = {"finalizers": ["resource.kubernetes.io/delete-protection"]}
            world.server.update(CLAIMS.name, "red", claim, metadata=finalizers)
            allocate(world, claim)
        await all_charged(world, GIVEN)
        seconds = time.process_time() - started
        assert len(world.asked) - before == PODS
        assert seconds < PROCESSOR_SECONDS, f"{seconds:.2f} s"
