"""Text that a tenant copies from one request into others gives no more room than the quota has.

Versions before this one joined the tries of one request by an annotation, `gpuledger.io/stamp`,
that the mutating webhook wrote. A tenant could read a genuine one from a dry run. So every storm
here copies all that a dry run shows, and a text of the old form where it shows nothing.
"""

import asyncio
import io
import json
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final

import pytest

from tests.e2e.harness.cluster import Answer, Cluster, Manifest
from tests.e2e.harness.polling import eventually
from tests.e2e.harness.slow_proxy import SlowProxy
from tests.e2e.objects.pods import CARDS, MEMORY
from tests.e2e.objects.team import Team

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(900)]

STAMP: Final = "gpuledger.io/stamp"
COPIED: Final = f"{'a' * 16}.1750000000.{'b' * 64}"

LIMIT: Final = 2
STORM: Final = (20, 40)
"""How many pods a storm creates at once, at least and at most."""

BYTES: Final = (400_000, 1_200_000)
"""How large each of them is: a large object takes long to be stored, and storms overlap then."""

STORMS: Final = 34
CONFIGURATION: Final = (
    "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/gpuledger"
)
MODES: Final = ("on", "slow", "absent")
GONE_SECONDS: Final = 60.0
READY_SECONDS: Final = 20.0
SCHEDULER: Final = "gpuledger-scheduler"
"""Only pods of a scheduler that places on cards are completed."""


def large(name: str, size: int, stamp: str) -> Manifest:
    """Return a pod that leaves the count of its cards out, so that the mutating webhook acts."""
    container = {
        "name": "main",
        "image": "cuda:12",
        "env": [{"name": "PADDING", "value": "x" * size}],
        "resources": {"limits": {MEMORY: "1000"}},
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"generateName": f"{name}-", "annotations": {STAMP: stamp}},
        "spec": {"schedulerName": SCHEDULER, "containers": [container]},
    }


@asynccontextmanager
async def mutating(tenant: Cluster, team: Team, mode: str) -> AsyncIterator[None]:
    """Have the mutating webhook answer as usual, late, or not be there at all."""
    if mode == "on":
        yield
        return
    configuration = await team.cluster.must("GET", CONFIGURATION)
    kept = configuration | {"metadata": {"name": "gpuledger"}}
    async with SlowProxy(team.service.address) as proxy:
        await replace(team, None)
        try:
            await completes(tenant, team, wanted=False)
            if mode == "slow":
                await replace(team, {**kept, "webhooks": [_through(proxy, kept["webhooks"][0])]})
            yield
        finally:
            await replace(team, kept)
    await completes(tenant, team, wanted=True)


async def replace(team: Team, configuration: Manifest | None) -> None:
    """Delete the mutating configuration, and write another in its place if there is one."""
    await team.cluster.ask("DELETE", CONFIGURATION)
    if configuration is not None:
        await team.cluster.must("POST", CONFIGURATION.rpartition("/")[0], configuration)


def _through(proxy: SlowProxy, webhook: dict[str, Any]) -> dict[str, Any]:
    client = {**webhook["clientConfig"], "url": f"https://{proxy.address}/admission/mutate"}
    return {**webhook, "clientConfig": client}


async def dry_run(tenant: Cluster, team: Team) -> Manifest:
    """Return a pod as a dry run shows it."""
    manifest = large("dry", 1, "")
    del manifest["metadata"]["annotations"]
    return await tenant.must("POST", f"{team.path}/pods?dryRun=All", manifest)


async def completes(tenant: Cluster, team: Team, *, wanted: bool) -> None:
    """Wait until the mutating webhook completes pods, or does not."""

    async def look() -> bool:
        shown = await dry_run(tenant, team)
        return CARDS in shown["spec"]["containers"][0]["resources"]["limits"]

    what = f"whether pods are completed is {wanted}"
    await eventually(look, lambda seen: seen is wanted, within=READY_SECONDS, what=what)


async def copied(tenant: Cluster, team: Team) -> str:
    """Return the stamp that a dry run shows, or a text that looks like one."""
    shown = await dry_run(tenant, team)
    return str((shown["metadata"].get("annotations") or {}).get(STAMP, COPIED))


async def post(tenant: Cluster, team: Team, body: bytes) -> Answer:
    """Create a pod that is too large to be sent in one piece."""
    kind = {"Content-Type": "application/json"}
    return await tenant.ask("POST", f"{team.path}/pods", data=io.BytesIO(body), headers=kind)


async def storm(tenant: Cluster, team: Team, stamp: str, source: random.Random) -> list[Answer]:
    """Create many large pods at once, all with the same copied stamp."""
    bodies = [
        json.dumps(large("s", source.randint(*BYTES), stamp)).encode()
        for _ in range(source.randint(*STORM))
    ]
    return await asyncio.gather(*(post(tenant, team, body) for body in bodies))


async def clear(team: Team) -> None:
    """Delete all pods, and wait until the quota is empty again."""
    await team.cluster.must("DELETE", f"{team.path}/pods", {"gracePeriodSeconds": 0})

    async def used() -> int:
        return sum(row["used"] for row in await team.usage())

    await eventually(
        used, lambda amount: amount == 0, within=GONE_SECONDS, what="the quota is empty"
    )


async def storms_stay_within(tenant: Cluster, team: Team, mode: str, rounds: int) -> None:
    """Run storms; fail with how many lived at most."""
    source = random.Random(f"{mode} {rounds}")
    live: list[int] = []
    created = 0
    for _ in range(rounds):
        stamp = await copied(tenant, team)
        async with mutating(tenant, team, mode):
            answers = await storm(tenant, team, stamp, source)
            created += sum(answer.status == 201 for answer in answers)
            live.append(len(await team.pods()))
            await clear(team)
    assert max(live) <= LIMIT, f"{mode}: of a quota of {LIMIT} there lived {live}"
    assert created >= rounds, f"{mode}: only {created} pods came in, which shows nothing"


@pytest.mark.parametrize("mode", MODES)
async def test_a_copied_stamp_gives_no_room(team: Team, tenant: Cluster, mode: str) -> None:
    await team.limit({f"limits.{CARDS}": str(LIMIT)})
    await storms_stay_within(tenant, team, mode, 1)
    await team.agrees(cards=0)


@pytest.mark.long
@pytest.mark.timeout(3_600)
@pytest.mark.parametrize("mode", MODES)
async def test_no_storm_of_copied_stamps_gives_room(team: Team, tenant: Cluster, mode: str) -> None:
    await team.limit({f"limits.{CARDS}": str(LIMIT)})
    await storms_stay_within(tenant, team, mode, STORMS)
    await team.agrees(cards=0)
