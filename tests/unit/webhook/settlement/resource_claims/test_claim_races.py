"""Resource claims whose events, commands and other replicas overtake one another."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec
from support.builders.settled_workloads import reserve
from support.claims.claim_settlement import pod_is_charged, settled_claims
from support.fakes.claimed_cluster import (
    BOUND,
    RED,
    make_claim,
    make_pod,
    make_template,
    pod_charge,
    reserve_key,
    serve_claims,
    show_claim,
)
from support.harness.settlement import World, full_world, pod_reconciler, session_of, settling

from ledger.core import snapshot_format
from ledger.core.model.commands import Observe
from ledger.core.model.devices import Device
from ledger.core.model.events import Committed
from ledger.core.model.state import State
from ledger.kube.api.api_resources import CLAIMS
from ledger.kube.api.cluster_ports import Changed, Interrupted, Listed
from ledger.kube.api.objects import Pod, Workload
from webhook.settlement.charge_settlement_session import SettlementSession
from webhook.settlement.invalid_objects import InvalidObjects
from webhook.settlement.open_attempt_ages import AttemptAges
from webhook.settlement.pod_observation import observe_counted_pod
from webhook.settlement.resource_claims.resource_claim_reconciler import ResourceClaimReconciler
from webhook.settlement.resource_claims.seen_claims import SeenClaim, seen_claim

MEMORY = "nvidia.com/gpumem"


def reconciler_of(session: SettlementSession) -> ResourceClaimReconciler:
    return ResourceClaimReconciler(
        session,
        session.context.resource_claims,
        ages=AttemptAges(),
        invalid_objects=InvalidObjects(),
    )


def seen(body: dict[str, Any]) -> SeenClaim:
    return seen_claim(msgspec.convert(body, Workload))


@asynccontextmanager
async def supplied() -> AsyncIterator[World]:
    """Yield a world whose templates, classes and slices are listed."""
    async with full_world() as world:
        serve_claims(world)
        make_template(world)
        async with settling(world):
            await world.synced()
        yield world


async def test_pod_is_observed_again_when_an_older_observation_was_stored_last():
    async with supplied() as world, session_of(world) as session:
        claims = reconciler_of(session)
        await claims.take(Listed(1, []))
        body = make_pod(world, "p", uid="u")
        pod = msgspec.convert(body, Pod)
        claims.pods.note(pod, observe_counted_pod(pod, session.name, session.context.rules))
        stored = Committed(RED, "pods/p", "u", 5)
        claims.follow(stored)
        older = Device("c", "g", "driver", "pool", "gpu-0")
        due = asyncio.ensure_future(claims.pods.next_due())
        await asyncio.sleep(1)
        assert not due.done()
        claims.follow(msgspec.structs.replace(stored, devices=(older,)))
        assert await asyncio.wait_for(due, 1) is pod


class Behind:
    """An earlier state, at first without entries, until a command was decided: a slow replica."""

    def __init__(self, world: World, earlier: State | None = None) -> None:
        self._world = world
        self.state = earlier or State()

    async def submit(self, command: Any, *, dry_run: bool = False) -> Any:
        answer = await self._world.submit(command, dry_run=dry_run)
        self.state = self._world.state
        return answer


async def test_reservation_of_a_claim_counts_before_its_pod_is_raised():
    async with supplied() as world:
        await reserve_key(world, f"{CLAIMS.name}/c", "claim-uid")
        pod = make_pod(world, "p", uid="u")
        claim = make_claim(world, "c", pod, uid="claim-uid")
        show_claim(world, "p", "c")
        behind = Behind(world)
        world.context.resource_claims._view = behind
        source = world.context.resource_claims
        source.note_claim(seen(claim).claim)
        async with session_of(world, behind) as session:
            pods = pod_reconciler(session, world.writer)
            body = world.server.objects["pods", "red", "p"]
            await pods.take(Changed(200, msgspec.convert(body, Pod)))
            await session.commands.flush()
        assert [item for item in world.asked if isinstance(item, Observe)] == []
        assert world.entry("p") is None


async def test_claims_that_another_replica_admitted_for_a_pod_stay_charged():
    """Else the pod has only what was admitted before, and its claims are refused."""
    less = {**BOUND, MEMORY: 1}
    async with supplied() as world:
        await reserve(world, "pods/p", "u", less)
        await world.writer.submit(Observe(RED, "pods/p", "u", 5, less))
        earlier = snapshot_format.decode(snapshot_format.encode(world.state))
        await reserve(world, "pods/p", "u", BOUND, base=5)
        pod = msgspec.convert(make_pod(world, "p", uid="u"), Pod)
        assert pod.metadata.version() > 5
        async with session_of(world, Behind(world, earlier)) as session:
            await pod_reconciler(session, world.writer).take(Changed(200, pod))
            await session.commands.flush()
        assert world.entry("p").committed.version == pod.metadata.version()
        assert pod_charge(world, "p") == BOUND


async def test_claims_are_listed_when_changes_follow_a_list_after_absence():
    async with supplied() as world, session_of(world) as session:
        claims = reconciler_of(session)
        await claims.take(Interrupted("resourceclaims is not served", absent=True))
        await claims.take(Listed(1, []))
        assert not claims.claims.listed
        await claims.take(Changed(2, seen(make_claim(world, "c"))))
        assert claims.claims.listed


async def test_pod_and_named_claim_are_charged_once_when_both_are_unreviewed():
    async with settled_claims() as world:
        pod = make_pod(world, "p")
        make_claim(world, "c", pod)
        await asyncio.sleep(2)
        show_claim(world, "p", "c")
        await pod_is_charged(world, BOUND)
        await asyncio.sleep(10)
        assert world.root(f"{CLAIMS.name}/c") is None
