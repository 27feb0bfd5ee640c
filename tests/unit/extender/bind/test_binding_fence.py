"""Another extender starts over after a killed one, and no card is given twice."""

import asyncio
from typing import Any

import msgspec
import pytest
from support.harness.extender_harness import (
    CLUSTER,
    DEADLINE_SECONDS,
    ExtenderReplica,
    ModelServer,
    cards,
    held,
    pod,
    replica,
)

from extender.bind.bind_or_give_back import NOT_FENCED, UNDER_WAY
from extender.scheduler_extender import ExtenderSettings
from ledger.core.model import commands
from ledger.core.model.cards import HAMI
from ledger.core.model.denials import Denial
from ledger.kube.api.cluster_errors import (
    ClusterError,
    ClusterUnavailable,
    Forbidden,
    VersionConflict,
)
from ledger.kube.api.cluster_ports import PodBinding
from ledger.kube.api.objects import ApiNode, ObjectMeta, Pod
from ledger.kube.hami.fence_label import LABEL
from ledger.log.ledger_port import Accepted, Ledger
from ledger.log.memory_log import MemoryStore

AT_ONCE = ExtenderSettings(bind_wait_seconds=0.2, fence_seconds=0.0)
"""Another extender's Binding is fenced as soon as it is met."""

LATER = ExtenderSettings(bind_wait_seconds=0.2, fence_seconds=60.0)
LOCK = "hami.io/mutex.lock"


class Older:
    """A ledger without versions of placements, as before the fence."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger

    async def submit(
        self, command: commands.AnyCommand, *, dry_run: bool = False
    ) -> Accepted | Denial:
        if isinstance(command, commands.Place):
            command = msgspec.structs.replace(command, version=0)
        return await self._ledger.submit(command, dry_run=dry_run)


@pytest.fixture
def gpu_pod() -> Pod:
    return pod("a", gpu=1, gpumem=8000)


@pytest.fixture
def server(gpu_pod: Pod) -> ModelServer:
    model = ModelServer()
    model.add(gpu_pod)
    return model


async def prepared(by: ExtenderReplica, gpu_pod: Pod, keeper: str = "gpuledger") -> None:
    await by.register("n1", cards("GPU-0", "GPU-1"), keeper)
    await by.register("n2", cards("GPU-2"))
    await by.create(gpu_pod)


def binding_of(gpu_pod: Pod, service: ExtenderReplica) -> PodBinding:
    """Return the Binding that the extender which placed a pod first would send."""
    meta = gpu_pod.metadata
    return PodBinding(
        namespace=meta.namespace,
        name=meta.name,
        uid=meta.uid,
        node="n1",
        annotations={"cards": ",".join(service.uuids("a"))},
        version=meta.resource_version,
    )


def labels(server: ModelServer) -> dict[str, str]:
    return server.pods["a"].metadata.labels or {}


@pytest.mark.parametrize("node", ["n1", "n2"])
async def test_killed_bind_starts_over_and_its_binding_is_refused(
    server: ModelServer, gpu_pod: Pod, node: str
) -> None:
    store = MemoryStore()
    async with replica(store, server) as killed:
        await prepared(killed, gpu_pod)
        async with held(server, killed, gpu_pod):
            late = binding_of(gpu_pod, killed)
    async with replica(store, server, AT_ONCE) as other:
        assert await other.bind(gpu_pod, node) == ""
        assert server.pods["a"].spec.node_name == node
        assert LABEL in labels(server)
        with pytest.raises(VersionConflict):
            await server.bind(late)
        placed = other.placed("a")
        assert placed is not None
        assert placed.node == f"{CLUSTER}/{node}"


async def test_a_bind_that_may_be_under_way_is_given_time(
    server: ModelServer, gpu_pod: Pod
) -> None:
    store = MemoryStore()
    async with replica(store, server) as killed:
        await prepared(killed, gpu_pod)
        async with held(server, killed, gpu_pod):
            pass
    async with replica(store, server, LATER) as other:
        assert UNDER_WAY in await other.bind(gpu_pod, "n1")
        assert LABEL not in labels(server)
        other.ahead = LATER.fence_seconds
        assert await other.bind(gpu_pod, "n1") == ""


async def test_a_pod_that_has_changed_by_itself_needs_no_label(
    server: ModelServer, gpu_pod: Pod
) -> None:
    store = MemoryStore()
    async with replica(store, server) as killed:
        await prepared(killed, gpu_pod)
        async with held(server, killed, gpu_pod):
            pass
    server.change("a")
    async with replica(store, server, LATER) as other:
        await other.places(server.pods["a"], "n1")
        assert await other.bind(server.pods["a"], "n1") == ""
        assert LABEL not in labels(server)


async def test_a_label_that_admission_takes_away_proves_nothing(
    server: ModelServer, gpu_pod: Pod
) -> None:
    server.strips_labels = True
    await _nothing_is_proved(server, gpu_pod)


@pytest.mark.parametrize(
    "error", [Forbidden("no"), ClusterUnavailable("no answer"), VersionConflict("changed")]
)
async def test_a_label_that_is_not_written_proves_nothing(
    server: ModelServer, gpu_pod: Pod, error: ClusterError
) -> None:
    server.label_fates.append(error)
    await _nothing_is_proved(server, gpu_pod)


async def test_a_label_that_the_tenant_has_written_before_proves_nothing(
    server: ModelServer, gpu_pod: Pod
) -> None:
    version = gpu_pod.metadata.resource_version
    meta = msgspec.structs.replace(gpu_pod.metadata, labels={LABEL: version})
    server.pods["a"] = gpu_pod = msgspec.structs.replace(gpu_pod, metadata=meta)
    await _nothing_is_proved(server, gpu_pod)


async def _nothing_is_proved(server: ModelServer, gpu_pod: Pod) -> None:
    """Assert that the first extender's Binding is still good, and so are its cards."""
    store = MemoryStore()
    async with replica(store, server) as first, replica(store, server, AT_ONCE) as other:
        await prepared(first, gpu_pod)
        await other.caught_up(first)
        async with held(server, first, gpu_pod) as bind:
            await other.caught_up(first)
            before = other.uuids("a")
            assert NOT_FENCED in await other.bind(gpu_pod, "n2")
            assert server.bindings == []
            bind.go_on.set()
            assert await bind.task == ""
        assert first.uuids("a") == other.uuids("a") == before


async def test_while_the_pod_cannot_be_read_nothing_is_proved(
    server: ModelServer, gpu_pod: Pod
) -> None:
    store = MemoryStore()
    async with replica(store, server) as first, replica(store, server, AT_ONCE) as other:
        await prepared(first, gpu_pod)
        async with held(server, first, gpu_pod):
            await other.caught_up(first)
            await other.places(gpu_pod, "n1")
            server.read_fates.append(ClusterUnavailable("unreachable"))
            assert "unreachable" in await other.bind(gpu_pod, "n1")
            assert other.placed("a") is not None


async def test_slow_extender_takes_nothing_from_the_one_that_fenced_it(
    server: ModelServer, gpu_pod: Pod
) -> None:
    store = MemoryStore()
    async with replica(store, server, AT_ONCE) as slow, replica(store, server, AT_ONCE) as other:
        await prepared(slow, gpu_pod)
        await other.caught_up(slow)
        async with held(server, slow, gpu_pod) as first:
            await other.caught_up(slow)
            async with held(server, other, gpu_pod) as second:
                await slow.caught_up(other)
                placed = other.placed("a")
                server.before_bind = None
                slow_settings(slow)
                first.go_on.set()
                said = await first.task
                assert UNDER_WAY in said
                await other.caught_up(slow)
                assert other.placed("a") == placed, "the slow one undoes its own placement only"
                second.go_on.set()
                assert await second.task == ""
    assert server.pods["a"].spec.node_name == "n1"


def slow_settings(slow: ExtenderReplica) -> None:
    """Have an extender wait before it fences, so that the two do not take turns."""
    placements: Any = slow.extender.placements
    placements.fence_wait._fence_seconds = 60.0


async def test_extenders_that_fence_one_another_wait_longer_each_time(
    server: ModelServer, gpu_pod: Pod
) -> None:
    store = MemoryStore()
    settings = ExtenderSettings(bind_wait_seconds=0.0, fence_seconds=10.0)
    async with replica(store, server) as first, replica(store, server, settings) as other:
        await prepared(first, gpu_pod)
        for pause in (10.0, 20.0, 40.0):
            await first.places(server.pods["a"], "n1")
            async with held(server, first, server.pods["a"]):
                await other.caught_up(first)
                server.fates.append(Forbidden("not now"))
                server.before_bind = None
                assert UNDER_WAY in await other.bind(server.pods["a"], "n1")
                other.ahead += pause - 1.0
                assert UNDER_WAY in await other.bind(server.pods["a"], "n1")
                other.ahead += 1.0
                assert "not now" in await other.bind(server.pods["a"], "n1")
            await first.caught_up(other)


async def test_the_lock_of_hamis_node_goes_with_the_cards(
    server: ModelServer, gpu_pod: Pod
) -> None:
    store = MemoryStore()
    server.nodes["n1"] = ApiNode(ObjectMeta(name="n1", resource_version="5"))
    async with replica(store, server) as killed:
        await prepared(killed, gpu_pod, HAMI)
        async with held(server, killed, gpu_pod):
            assert LOCK in (server.nodes["n1"].metadata.annotations or {})
    async with replica(store, server, AT_ONCE) as other:
        assert await other.bind(gpu_pod, "n2") == ""
    assert LOCK not in (server.nodes["n1"].metadata.annotations or {})


async def test_lock_stays_with_the_extender_that_has_placed_the_pod_again(
    server: ModelServer, gpu_pod: Pod
) -> None:
    store = MemoryStore()
    server.nodes["n1"] = ApiNode(ObjectMeta(name="n1", resource_version="5"))
    async with replica(store, server, AT_ONCE) as slow, replica(store, server, AT_ONCE) as other:
        await prepared(slow, gpu_pod, HAMI)
        await other.caught_up(slow)
        async with held(server, slow, gpu_pod) as first:
            await other.caught_up(slow)
            async with held(server, other, gpu_pod) as second:
                await slow.caught_up(other)
                slow_settings(slow)
                server.before_bind = None
                first.go_on.set()
                await first.task
                assert LOCK in (server.nodes["n1"].metadata.annotations or {})
                second.go_on.set()
                assert await second.task == ""


async def test_what_an_older_leader_has_placed_is_never_fenced(
    server: ModelServer, gpu_pod: Pod
) -> None:
    store = MemoryStore()
    async with (
        replica(store, server, AT_ONCE, Older) as first,
        replica(store, server, AT_ONCE) as other,
    ):
        await prepared(first, gpu_pod)
        await other.caught_up(first)
        async with held(server, first, gpu_pod) as bind:
            await other.caught_up(first)
            assert UNDER_WAY in await other.bind(gpu_pod, "n1")
            server.change("a")
            await other.places(server.pods["a"], "n1")
            assert UNDER_WAY in await other.bind(server.pods["a"], "n1")
            assert LABEL not in labels(server)
            placed = other.placed("a")
            server.before_bind = None
            bind.go_on.set()
            await bind.task
        assert other.placed("a") == placed, "settlement gives back what has no version"


async def test_an_undo_through_an_older_leader_gives_no_card_twice(
    server: ModelServer, gpu_pod: Pod
) -> None:
    """The fencing extender's new placement has no version where its leader is an older one."""
    store = MemoryStore()
    async with (
        replica(store, server, LATER) as slow,
        replica(store, server, AT_ONCE, ledger=Older) as other,
    ):
        await prepared(slow, gpu_pod)
        await other.caught_up(slow)
        async with held(server, slow, gpu_pod) as first:
            await other.caught_up(slow)
            async with held(server, other, gpu_pod) as second:
                await slow.caught_up(other)
                placed = other.placed("a")
                server.before_bind = None
                first.go_on.set()
                assert UNDER_WAY in await first.task
                async with asyncio.timeout(DEADLINE_SECONDS):
                    await other.caught_up(slow)
                assert other.placed("a") == placed
                second.go_on.set()
                assert await second.task == ""
