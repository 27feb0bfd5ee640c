"""Absence proofs, and observations that prove nothing."""

import asyncio
from collections.abc import AsyncIterator

import pytest
from support.fakes.apiserver import pod_body
from support.harness.settlement import CLUSTER, DEMAND, World, pod_reconciler, session_of, world

from ledger.core.model.commands import CREATE, Observe, Reserve
from ledger.kube.api.cluster_errors import Forbidden
from webhook.settlement.absence_proof import AbsenceProver
from webhook.settlement.charge_settlement_session import RECOUNTED, WATCHED, SettlementSession
from webhook.settlement.open_attempt_ages import AttemptAges, OpenAttempt, start_open_attempt_ages

BOUND = 60.0


class Scene:
    """A barrier over a world, with ages that a test sets."""

    def __init__(self, bare_world: World, session: SettlementSession) -> None:
        self.world = bare_world
        self.session = session
        self.commands = session.commands
        self.ages = AttemptAges()
        pods = pod_reconciler(session, bare_world.writer, self.ages)
        self.barrier = AbsenceProver(session, self.ages, lister_of={"pods": pods}.get)
        bare_world.writer.subscribe(self._follow)

    async def hold(self, name: str, uid: str, *, age: float, base: int = CREATE) -> OpenAttempt:
        await self.world.reserve(name, uid, base=base)
        attempt = OpenAttempt(f"{CLUSTER}/red", f"pods/{name}", uid, base)
        self.ages.start(attempt, asyncio.get_running_loop().time() - age)
        return attempt

    async def settle(self) -> None:
        await self.barrier.settle()
        await self.commands.flush()

    def _follow(self, record) -> None:
        for item in record.items:
            self.ages.follow(item.event, asyncio.get_running_loop().time())


@pytest.fixture
async def scene() -> AsyncIterator[Scene]:
    async with world(settle_seconds=BOUND) as bare_world, session_of(bare_world) as session:
        yield Scene(bare_world, session)


async def test_attempt_is_released_when_unlisted_after_its_bound(scene):
    await scene.hold("p", "u1", age=BOUND + 1)
    await scene.settle()
    assert scene.world.entry("p") is None
    assert len(scene.ages) == 0


async def test_attempt_is_not_listed_when_below_its_bound(scene):
    await scene.hold("p", "u1", age=BOUND - 1)
    await scene.settle()
    assert scene.world.entry("p").holds
    assert scene.world.server.lists == 0


async def test_list_proves_nothing_when_begun_before_the_bound(scene):
    await scene.hold("p", "old", age=BOUND + 1)
    await scene.hold("p", "young", age=BOUND - 2)
    listing = scene.world.cluster.list_pods

    async def slow(namespace: str):
        listed = await listing(namespace)
        await asyncio.sleep(2.1)  # meanwhile the young attempt passes the bound
        return listed

    scene.world.cluster.list_pods = slow
    await scene.settle()
    assert [hold.uid for hold in scene.world.entry("p").holds] == ["young"]


async def test_age_restarts_when_a_hold_is_raised_during_the_list(scene):
    created = scene.world.server.create("pods", "red", pod_body("p"), "u1")
    base = int(created["metadata"]["resourceVersion"])
    attempt = await scene.hold("p", "u1", base=base, age=BOUND + 1)
    listing = scene.world.cluster.list_pods

    async def raising(namespace: str):
        listed = await listing(namespace)
        more = {**DEMAND, "nvidia.com/gpumem": 9000}
        command = Reserve(attempt.namespace, attempt.key, "u1", more, base)
        await scene.world.writer.submit(command)
        return listed

    scene.world.cluster.list_pods = raising
    await scene.settle()
    holds = scene.world.entry("p").holds
    assert [hold.demand["nvidia.com/gpumem"] for hold in holds] == [9000]


async def test_failed_list_proves_nothing_and_is_repeated_after_a_pause(scene):
    await scene.hold("p", "u1", age=BOUND + 1)
    scene.world.server.failing = Forbidden("pods is forbidden")
    for _ in range(3):
        await scene.settle()
    assert scene.world.entry("p").holds
    assert scene.world.server.lists == 1
    assert scene.world.counted == {("settle_lists_total",): 1, ("settle_failures_total",): 1}


async def test_attempt_is_released_when_another_object_has_its_key(scene):
    scene.world.server.create("pods", "red", pod_body("p"), "u2")
    await scene.hold("p", "u1", age=BOUND + 1)
    await scene.settle()
    entry = scene.world.entry("p")
    assert entry.committed.uid == "u2"
    assert not entry.holds


async def test_unlisted_namespace_does_not_delay_the_others(scene):
    await scene.hold("p", "u1", age=BOUND + 2)
    blue = OpenAttempt(f"{CLUSTER}/blue", "pods/q", "u2", CREATE)
    await scene.world.reserve("q", "u2", namespace=blue.namespace)
    scene.ages.start(blue, asyncio.get_running_loop().time() - BOUND - 1)
    listing = scene.world.cluster.list_pods

    async def partly(namespace: str):
        if namespace == "red":
            raise Forbidden("not this one")
        return await listing(namespace)

    scene.world.cluster.list_pods = partly
    await scene.settle()
    assert scene.world.entry("p").holds
    assert scene.world.entry("q", blue.namespace) is None


async def test_ages_start_at_zero_when_a_session_begins(scene):
    attempt = await scene.hold("p", "u1", age=BOUND + 1)
    fresh = AttemptAges()
    await start_open_attempt_ages(scene.session, fresh)
    assert len(fresh) == 1
    assert fresh.of(attempt, asyncio.get_running_loop().time()) < BOUND


async def test_age_restarts_when_an_attempt_was_checked(scene):
    await scene.hold("p", "u1", age=BOUND + 1)
    await scene.barrier.settle()
    await scene.barrier.settle()  # the proof is still on its way
    assert scene.world.server.lists == 1


async def shown_by_a_review(scene: Scene, name: str, uid: str, version: int, age: float) -> None:
    """Have a review of an update show an object, as long ago as `age` seconds."""
    where = (f"{CLUSTER}/red", f"pods/{name}", uid, version)
    await scene.world.writer.submit(Observe(*where, DEMAND, "admin"))
    scene.ages.start(OpenAttempt(*where), asyncio.get_running_loop().time() - age)


async def test_reviewed_object_is_listed_when_no_watch_reported_it(scene):
    await scene.world.writer.submit(Observe(f"{CLUSTER}/red", "pods/p", "u1", 5, DEMAND, "admin"))
    assert [
        attempt.uid for attempt in scene.ages.at_least(0.0, asyncio.get_running_loop().time())
    ] == ["u1"]


async def test_observed_object_is_not_listed_again(scene):
    for actor in (WATCHED, RECOUNTED):
        seen = Observe(f"{CLUSTER}/red", f"pods/{actor}", actor, 5, DEMAND, actor)
        await scene.world.writer.submit(seen)
    assert len(scene.ages) == 0


async def test_object_is_released_when_deleted_while_its_review_waited(scene):
    await shown_by_a_review(scene, "p", "u1", 1, BOUND + 1)
    assert scene.world.entry("p").committed
    await scene.settle()
    assert scene.world.entry("p") is None
    assert len(scene.ages) == 0


async def test_reviewed_object_stays_charged_when_it_exists(scene):
    created = scene.world.server.create("pods", "red", pod_body("p"), "u1")
    version = int(created["metadata"]["resourceVersion"])
    await shown_by_a_review(scene, "p", "u1", version, BOUND + 1)
    await scene.settle()
    assert scene.world.entry("p").committed
    assert len(scene.ages) == 0
