"""A workload whose envelope allocations have lowered: other supply, recounts and a restart."""

import asyncio
import copy
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest
from support.builders.settled_workloads import WEB, change, create, reserve
from support.claims.claim_settlement import settled_claims
from support.fakes.claimed_cluster import (
    BOUND,
    CLASS,
    GIVEN,
    RED,
    allocate,
    claim_spec,
    generated,
    make_pod,
)
from support.fakes.full_cluster import DEPLOYMENTS, REPLICASETS, deployment, reference, workload
from support.harness.replicas import running
from support.harness.settlement import World, settling

from ledger.core.evolve import envelope_charges
from ledger.core.model.amounts import Amounts, plus
from ledger.core.model.commands import Observe
from ledger.kube.api.api_resources import (
    CLAIM_TEMPLATES,
    DEVICE_CLASSES,
    RESOURCE_SLICES,
    Resource,
)
from ledger.log.memory_log import MemoryStore

PODS, RECOUNT = 2, 5.0


def of(pods: int, each: Amounts) -> Amounts:
    return {name: pods * amount for name, amount in each.items()}


SETTLED = of(PODS, GIVEN)
"""The charge when the claims of all pods are allocated."""


@asynccontextmanager
async def saving_web(store: MemoryStore | None = None) -> AsyncIterator[World]:
    """Yield the world of a Deployment of two pods, whose allocations have lowered its envelope."""
    async with settled_claims(recount_seconds=RECOUNT, store=store) as world:
        await reserve(world, WEB, "web-uid", of(PODS, BOUND))
        web = deployment("web", PODS)
        web["spec"]["template"]["spec"] = make_pod(world, "shape")["spec"]
        world.server.delete("pods", "red", "shape")
        made = create(world, DEPLOYMENTS, web, "web-uid")
        owned = create(world, REPLICASETS, workload(REPLICASETS, "web-1", made), "rs-uid")
        for name in ("p", "q")[:PODS]:
            await reserve(world, f"pods/{name}", f"{name}-uid", BOUND, root=WEB)
            pod = make_pod(world, name, uid=f"{name}-uid", owners=(reference(owned),))
            allocate(world, generated(world, pod))
        await world.until(lambda: charge(world) == SETTLED)
        yield world


async def revise(world: World) -> None:
    """Write another generation of the Deployment, which demands as much."""
    change(world, DEPLOYMENTS, "web", generation=2, spec={"minReadySeconds": 5})


def charge(world: World) -> Amounts:
    """Return the charge of the Deployment and its pods."""
    space = world.state.namespaces[RED]
    terms = envelope_charges.terms(space, WEB)
    return terms[0].amounts if len(terms) == 1 else {}


def rounding(step: str) -> Callable[[World], object]:
    """Return a change of the slice, after which requests for memory are rounded to this step."""

    def change_slice(world: World) -> None:
        body = copy.deepcopy(world.server.objects[RESOURCE_SLICES.name, "", "n1-slice"])
        for device in body["spec"]["devices"]:
            policy = {"default": step, "validRange": {"min": step, "step": step}}
            device["capacity"]["memory"]["requestPolicy"] = policy
        world.server.update(RESOURCE_SLICES.name, "", "n1-slice", spec=body["spec"])

    return change_slice


def without(resource: Resource, namespace: str, name: str) -> Callable[[World], object]:
    return lambda world: world.server.delete(resource.name, namespace, name)


def larger_template(world: World) -> None:
    world.server.delete(CLAIM_TEMPLATES.name, "red", "small")
    body = {"metadata": {"name": "small"}, "spec": {"spec": claim_spec("40Gi")}}
    world.server.create(CLAIM_TEMPLATES.name, "red", body)


async def commands_of_recounts(world: World) -> list[int]:
    """Return how many observations each of two recounts sent."""
    counts = []
    for _ in range(2):
        world.asked.clear()
        await asyncio.sleep(2 * RECOUNT)
        counts.append(sum(isinstance(command, Observe) for command in world.asked))
    return counts


@pytest.mark.parametrize(
    "change_supply",
    [
        rounding("20Gi"),
        without(RESOURCE_SLICES, "", "n1-slice"),
        without(DEVICE_CLASSES, "", CLASS),
        larger_template,
    ],
)
async def test_supply_does_not_bring_savings_back(change_supply: Callable[[World], object]) -> None:
    store = MemoryStore()
    async with saving_web(store) as world:
        change_supply(world)
        counts = await commands_of_recounts(world)
        assert charge(world) == SETTLED
        assert counts[1] == 0
        await revise(world)
        counts = await commands_of_recounts(world)
        assert charge(world) == SETTLED
        assert counts[1] == 0
        cluster, settings = world.cluster, world.settings
    async with running(store) as writer:
        again = World(writer, settings, cluster)
        async with settling(again):
            await again.synced()
            counts = await commands_of_recounts(again)
            assert charge(again) == SETTLED
            assert counts[1] == 0


async def test_reviewed_scale_is_observed_as_its_spec_demands() -> None:
    async with saving_web() as world:
        stored = world.root(WEB)
        assert stored is not None
        assert stored.committed is not None
        version = stored.committed.version
        await reserve(world, WEB, "web-uid", of(PODS + 1, BOUND), base=version)
        rounding("20Gi")(world)
        change(world, DEPLOYMENTS, "web", generation=2, spec={"replicas": PODS + 1})
        counts = await commands_of_recounts(world)
        assert counts[1] == 0
        assert charge(world) == plus(SETTLED, BOUND)
        assert [body.bound for body in world.root(WEB).bodies()] == [of(PODS + 1, BOUND)]
