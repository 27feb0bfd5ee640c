"""An extender whose replica learns a moment later what another one has decided."""

import asyncio
import contextlib
from collections.abc import AsyncIterator

import pytest
from support.harness.extender_harness import (
    DEADLINE_SECONDS,
    NOW,
    ExtenderReplica,
    ModelServer,
    cards,
    held,
    pod,
    replica,
)
from support.harness.replicas import running

from extender.scheduler_extender import ExtenderSettings
from ledger.core.model.cards import HAMI
from ledger.kube.api.cluster_errors import ClusterError, ClusterUnavailable, Forbidden
from ledger.kube.api.objects import ApiNode, ObjectMeta, Pod
from ledger.log.memory_log import Fault, MemoryStore

AT_ONCE = ExtenderSettings(bind_wait_seconds=0.2, fence_seconds=0.0)
LAG_SECONDS = 0.1
LOCK = "hami.io/mutex.lock"


class Late:
    """Records are known here a moment after they were stored."""

    def strike(self, call: str) -> Fault:
        return Fault(before=LAG_SECONDS if call == "follow" else 0.0)


class Yard:
    """A pod, a HAMi node, a replica that decides and one that asks it."""

    def __init__(
        self, server: ModelServer, owner: ExtenderReplica, follower: ExtenderReplica
    ) -> None:
        self.server, self.owner, self.follower = server, owner, follower

    async def told(self) -> None:
        """Return when the follower has applied every decision."""
        await self.follower.caught_up(self.owner)

    def is_locked(self) -> bool:
        return LOCK in (self.server.nodes["n1"].metadata.annotations or {})


@pytest.fixture
def gpu_pod() -> Pod:
    return pod("a", gpu=1, gpumem=8000)


@pytest.fixture
async def yard(gpu_pod: Pod) -> AsyncIterator[Yard]:
    server, store = ModelServer(), MemoryStore()
    server.add(gpu_pod)
    server.nodes["n1"] = ApiNode(ObjectMeta(name="n1", resource_version="5"))
    async with (
        replica(store, server, AT_ONCE) as owner,
        _following(store, server, owner) as follower,
    ):
        await owner.register("n1", cards("GPU-0", "GPU-1"), HAMI)
        await owner.create(gpu_pod)
        await follower.caught_up(owner)
        yield Yard(server, owner, follower)


@contextlib.asynccontextmanager
async def _following(
    store: MemoryStore, server: ModelServer, owner: ExtenderReplica
) -> AsyncIterator[ExtenderReplica]:
    async with running(store, now=lambda: int(NOW * 1e6), faults=Late()) as writer:
        yield ExtenderReplica(writer, server, AT_ONCE, owner.writer)


@pytest.mark.parametrize("error", [Forbidden("not now"), ClusterUnavailable("no answer")])
async def test_a_pod_that_has_changed_is_bound_by_the_same_call(
    yard: Yard, gpu_pod: Pod, error: ClusterError
) -> None:
    async def change_first() -> None:
        await yard.told()
        yard.server.before_bind = None
        yard.server.change("a")
        if isinstance(error, ClusterUnavailable):
            yard.server.fates.append(error)

    yard.server.before_bind = change_first
    assert await yard.follower.bind(gpu_pod, "n1") == ""
    assert yard.server.pods["a"].spec.node_name == "n1"
    assert len(yard.server.bindings) == 2


async def test_a_lock_goes_with_the_cards_of_a_refused_binding(yard: Yard, gpu_pod: Pod) -> None:
    yard.server.before_bind = yard.told
    yard.server.fates.append(Forbidden("not now"))
    assert "not now" in await yard.follower.bind(gpu_pod, "n1")
    assert yard.owner.placed("a") is None
    assert not yard.is_locked()


async def test_late_fence_leaves_the_lock_of_the_pod_placed_again(
    yard: Yard, gpu_pod: Pod, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with held(yard.server, yard.owner, gpu_pod):
        pass
    await yard.told()
    reads, reading, go_on = yard.server.get_pod, asyncio.Event(), asyncio.Event()

    async def slow_read(namespace: str, name: str) -> Pod | None:
        monkeypatch.setattr(yard.server, "get_pod", reads)
        yard.server.change("a")
        current = await reads(namespace, name)
        reading.set()
        await go_on.wait()
        return current

    monkeypatch.setattr(yard.server, "get_pod", slow_read)
    late = asyncio.create_task(yard.follower.bind(gpu_pod, "n1"))
    await reading.wait()
    async with held(yard.server, yard.owner, yard.server.pods["a"]) as anew:
        yard.server.before_bind = None
        go_on.set()
        await yard.told()
        async with asyncio.timeout(DEADLINE_SECONDS):
            said = await late
        assert yard.is_locked(), said
        anew.go_on.set()
        assert await anew.task == ""
    assert yard.server.pods["a"].spec.node_name == "n1"
