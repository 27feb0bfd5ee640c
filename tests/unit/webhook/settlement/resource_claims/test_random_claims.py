"""Random days of pods and claims: at the end each existing claim is charged exactly once.

The expected charges follow from lists of the stored pods and claims, not from their history. Only
one fact is taken from the ledger: a claim that has an entry of its own is left out of its pod.
"""

import asyncio
import random
from collections import defaultdict
from typing import Any

import pytest
from support.fakes.apiserver import Object
from support.fakes.claimed_cluster import (
    BOUND,
    allocate,
    charge_of,
    claim_entry,
    deallocate,
    make_claim,
    make_pod,
    make_template,
    pod_charge,
    reserve_key,
    serve_claims,
    show_claim,
)
from support.harness.settlement import World, full_world, settling

from ledger.core.model.amounts import Amounts, plus
from ledger.kube.api.api_resources import CLAIMS

SETTLE_SECONDS = 4.0
STEPS = 40


class Day:
    """One day of writes in a namespace, from a seed."""

    def __init__(self, world: World, seed: int) -> None:
        self._world = world
        self._random = random.Random(seed)
        self._made = 0

    async def step(self) -> None:
        """Write something."""
        acts = [self._pod, self._pod, self._claim, self._claim, self._named, self._show]
        acts += [self._allocate, self._allocate, self._clear, self._end, self._drop, self._forge]
        await self._random.choice(acts)()
        if self._random.random() < 0.5:
            await asyncio.sleep(self._random.choice((0.01, 0.3, 2.0, SETTLE_SECONDS + 3)))

    def stored(self, kind: str) -> list[Object]:
        return [body for (its, _, _), body in self._world.server.objects.items() if its == kind]

    def _any(self, kind: str) -> Object | None:
        bodies = self.stored(kind)
        return self._random.choice(bodies) if bodies else None

    def _name(self, prefix: str) -> str:
        self._made += 1
        return f"{prefix}{self._made}"

    async def _pod(self) -> None:
        name = self._name("p")
        if self._random.random() < 0.8:
            await reserve_key(self._world, f"pods/{name}", f"uid-of-{name}")
        make_pod(self._world, name, uid=f"uid-of-{name}")

    async def _claim(self) -> None:
        """Generate the claim of a pod; its review may have charged it at its own key."""
        pod = self._any("pods")
        if pod is None:
            return
        name = self._name("c")
        if self._random.random() < 0.3:
            await reserve_key(self._world, f"{CLAIMS.name}/{name}", f"uid-of-{name}")
        make_claim(self._world, name, pod, uid=f"uid-of-{name}")
        if self._random.random() < 0.7:
            show_claim(self._world, pod["metadata"]["name"], name)

    async def _named(self) -> None:
        name = self._name("n")
        if self._random.random() < 0.7:
            await reserve_key(self._world, f"{CLAIMS.name}/{name}", f"uid-of-{name}")
        make_claim(self._world, name, uid=f"uid-of-{name}")

    async def _forge(self) -> None:
        """Have a pod name a claim that it does not control, or none."""
        pod, claim = self._any("pods"), self._any(CLAIMS.name)
        if pod is not None and claim is not None:
            show_claim(self._world, pod["metadata"]["name"], claim["metadata"]["name"])

    async def _show(self) -> None:
        claim = self._any(CLAIMS.name)
        meta = claim["metadata"] if claim is not None else {}
        for owner in meta.get("ownerReferences", ()):
            if ("pods", "red", owner["name"]) in self._world.server.objects:
                show_claim(self._world, owner["name"], meta["name"])

    async def _allocate(self) -> None:
        claim = self._any(CLAIMS.name)
        if claim is not None and not claim.get("status", {}).get("allocation"):
            memory = f"{self._random.choice((1, 4, 8, 12))}Gi"
            allocate(self._world, claim["metadata"]["name"], memory=memory)

    async def _clear(self) -> None:
        claim = self._any(CLAIMS.name)
        if claim is not None:
            deallocate(self._world, claim["metadata"]["name"])

    async def _end(self) -> None:
        pod = self._any("pods")
        if pod is None:
            return
        name = pod["metadata"]["name"]
        if self._random.random() < 0.5:
            self._world.server.update("pods", "red", name, status={"phase": "Succeeded"})
        else:
            self._world.server.delete("pods", "red", name)

    async def _drop(self) -> None:
        claim = self._any(CLAIMS.name)
        if claim is not None:
            self._world.server.delete(CLAIMS.name, "red", claim["metadata"]["name"])


def amounts_of(claim: Object) -> Amounts:
    """Return the amounts of a claim from its stored form."""
    allocation = claim.get("status", {}).get("allocation")
    if not allocation:
        return BOUND
    memory = allocation["devices"]["results"][0]["consumedCapacity"]["memory"]
    return {**BOUND, "nvidia.com/gpumem": int(memory.removesuffix("Gi")) * 1024}


def names_in(pod: Object) -> set[str]:
    return {made["resourceClaimName"] for made in pod["status"].get("resourceClaimStatuses", ())}


def counting(pods: list[Object]) -> dict[str, Object]:
    """Return the pods that count, by uid."""
    return {pod["metadata"]["uid"]: pod for pod in pods if pod["status"]["phase"] != "Succeeded"}


def check_claims(day: Day, world: World) -> defaultdict[str, list[Object]]:
    """Check every claim's own charge; return the claims that count with a pod, by its uid."""
    pods, with_pod = counting(day.stored("pods")), defaultdict(list)
    for claim in day.stored(CLAIMS.name):
        meta = claim["metadata"]
        owner = next((ref["uid"] for ref in meta.get("ownerReferences", ())), "")
        pod, entry = pods.get(owner), claim_entry(world, meta["name"])
        if entry is not None:
            assert charge_of(entry) == amounts_of(claim), meta["name"]
            assert entry.committed is not None
            assert entry.committed.uid == meta["uid"]
        else:
            assert pod is not None, f"{meta['name']} is charged nowhere"
            assert meta["name"] in names_in(pod), f"{meta['name']} is charged nowhere"
            with_pod[owner].append(claim)
    return with_pod


def check_pods(day: Day, world: World, with_pod: dict[str, list[Object]]) -> None:
    """Check the charge of every pod, in which each of its claims counts once."""
    for uid, pod in counting(day.stored("pods")).items():
        name = pod["metadata"]["name"]
        charge: Amounts = {}
        for claim in with_pod.get(uid, ()):
            charge = plus(charge, amounts_of(claim))
        own = [
            claim
            for claim in day.stored(CLAIMS.name)
            if any(ref["uid"] == uid for ref in claim["metadata"].get("ownerReferences", ()))
        ]
        seen = pod_charge(world, name)
        if own:
            assert seen == charge, (name, seen, charge)
        else:
            # It keeps what was charged for a claim that was deleted, because another may follow.
            assert seen in ({}, BOUND), (name, seen)


def check_nothing_else(day: Day, world: World) -> None:
    """Check that every entry of the ledger is that of a stored object."""
    space = world.state.namespaces.get("c/red")
    stored = {f"pods/{pod['metadata']['name']}" for pod in counting(day.stored("pods")).values()}
    stored |= {f"{CLAIMS.name}/{claim['metadata']['name']}" for claim in day.stored(CLAIMS.name)}
    assert set(space.entries if space is not None else ()) <= stored


async def run_day(seed: int, **settings: Any) -> None:
    async with full_world(settle_seconds=SETTLE_SECONDS, **settings) as world:
        serve_claims(world)
        make_template(world)
        day, source = Day(world, seed), random.Random(-seed)
        for _ in range(3):
            async with settling(world):
                for _ in range(STEPS // 3):
                    await day.step()
                if source.random() < 0.5:
                    await world.synced()
            for _ in range(source.randrange(4)):
                await day.step()
        async with settling(world):
            await world.synced()
            for _ in range(STEPS // 3):
                await day.step()
            await asyncio.sleep(4 * SETTLE_SECONDS)
            check_pods(day, world, check_claims(day, world))
            check_nothing_else(day, world)


@pytest.mark.parametrize("seed", [3, 12, 100, 104, 187, 232])
async def test_each_claim_is_charged_once_at_the_end_of_a_day(seed):
    await run_day(seed)
