"""Extender harness: extenders on one ledger in memory, and a model of the API server."""

import asyncio
import contextlib
import json
import time
from collections import deque
from collections.abc import AsyncIterator, Mapping
from copy import deepcopy
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec
from support.harness.replicas import running

from extender.inventory.cluster_inventory import ClusterInventory
from extender.inventory.unrecorded_card_use import UsageOverlay
from extender.scheduler_api.extender_ports import ExtenderPorts, Publish
from extender.scheduler_api.extender_wire import BindingArgs, ExtenderArgs, NodeMeta
from extender.scheduler_extender import Extender, ExtenderSettings
from ledger.core.model import commands
from ledger.core.model.cards import OWN, Card, Placement
from ledger.core.model.denials import Denial
from ledger.kube.api.cluster_errors import (
    ClusterError,
    ClusterUnavailable,
    NotFound,
    VersionConflict,
)
from ledger.kube.api.cluster_ports import PodBinding, PodEvent
from ledger.kube.api.objects import ApiNode, ObjectMeta, Pod
from ledger.kube.hami.node_device_annotation import announcement
from ledger.kube.requests.demand_rules import DemandRules
from ledger.log.ledger_port import Ledger
from ledger.log.memory_log import MemoryStore
from ledger.log.writer.writer import Writer

FIXTURES: Final = Path(__file__).parents[2] / "fixtures" / "extender"
CLUSTER: Final = "east"
NAMESPACE: Final = "team"
NOW = 1_700_000_000.0
"""Seconds of Unix time."""
RULES: Final = DemandRules()
DEADLINE_SECONDS: Final = 10

_POD: Final = json.loads((FIXTURES / "extender-names.json").read_text())[0]["args"]["Pod"]


def pod(name: str, annotations: dict[str, str] | None = None, /, **asked: int) -> Pod:
    """Return the recorded pod under another name, asking for other amounts of nvidia.com/…"""
    body = deepcopy(_POD)
    body["metadata"] |= {"name": name, "namespace": NAMESPACE, "uid": f"uid-{name}"}
    body["metadata"]["annotations"] = annotations or {}
    limits = {f"nvidia.com/{key}": str(amount) for key, amount in asked.items()}
    body["spec"]["containers"][0]["resources"] = {"limits": limits}
    return msgspec.convert(body, Pod)


def cards(*uuids: str, memory: int = 16_000, slots: int = 4) -> tuple[Card, ...]:
    """Return cards of one node, all alike."""
    return tuple(
        Card(uuid, index, "NVIDIA-T4", memory, 100, slots) for index, uuid in enumerate(uuids)
    )


class ModelServer:
    """An API server as binding sees it: `fates` decide what becomes of the next Bindings.

    A fate is an error to raise, before the Binding is stored, or `Stored` around one, after it.
    """

    def __init__(self) -> None:
        self.pods: dict[str, Pod] = {}
        self.nodes: dict[str, ApiNode] = {}
        self.bindings: list[PodBinding] = []
        self.events: list[PodEvent] = []
        self.fates: deque[Any] = deque()
        self.read_fates: deque[ClusterError] = deque()
        self.label_fates: deque[ClusterError] = deque()
        self.strips_labels = False
        self.before_bind: Any = None
        self.told = asyncio.Semaphore(0)
        self.written = 1_000

    def add(self, *pods: Pod) -> None:
        for added in pods:
            self.pods[added.metadata.name] = added

    def change(self, name: str, **changes: Any) -> None:
        """Write a pod: `node` binds it, `annotations` and `labels` replace its own."""
        self.written += 1
        stored = self.pods[name]
        meta = msgspec.structs.replace(
            stored.metadata,
            resource_version=str(self.written),
            annotations=changes.get("annotations", stored.metadata.annotations),
            labels=changes.get("labels", stored.metadata.labels),
        )
        node = changes.get("node", stored.spec.node_name)
        spec = msgspec.structs.replace(stored.spec, node_name=node)
        self.pods[name] = msgspec.structs.replace(stored, metadata=meta, spec=spec)

    async def get_pod(self, namespace: str, name: str) -> Pod | None:
        if self.read_fates:
            raise self.read_fates.popleft()
        return self.pods.get(name)

    async def get_node(self, name: str) -> ApiNode | None:
        return self.nodes.get(name)

    async def bind(self, binding: PodBinding) -> None:
        if self.before_bind is not None:
            await self.before_bind()
        self.bindings.append(binding)
        fate = self.fates.popleft() if self.fates else None
        if isinstance(fate, ClusterError):
            raise fate
        self._store(binding, getattr(fate, "node", "") or binding.node)
        if fate is not None:
            raise fate.error

    async def label_pod(
        self, namespace: str, name: str, labels: Mapping[str, str], version: str
    ) -> None:
        if self.label_fates:
            raise self.label_fates.popleft()
        if name not in self.pods:
            raise NotFound(f"pods {name} not found")
        if self.pods[name].metadata.resource_version != version:
            raise VersionConflict(f"pod {name} is at another version")
        before = self.pods[name].metadata.labels or {}
        kept: Mapping[str, str] = {} if self.strips_labels else labels
        if {**before, **kept} != before:
            self.change(name, labels={**before, **kept})

    async def patch_node_annotations(
        self, name: str, changes: Mapping[str, str | None], version: str = ""
    ) -> None:
        node = self.nodes[name]
        if version and node.metadata.resource_version != version:
            raise VersionConflict(f"node {name} is at another version")
        self.written += 1
        kept = {**(node.metadata.annotations or {}), **changes}
        annotations = {key: value for key, value in kept.items() if value is not None}
        self.nodes[name] = ApiNode(
            ObjectMeta(name=name, annotations=annotations, resource_version=str(self.written))
        )

    async def create_event(self, event: PodEvent) -> None:
        self.events.append(event)
        self.told.release()

    def _store(self, binding: PodBinding, node: str) -> None:
        stored = self.pods.get(binding.name)
        if stored is None:
            raise NotFound(f"pods {binding.name} not found")
        if stored.metadata.uid != binding.uid or stored.spec.node_name:
            raise VersionConflict(f"pod {binding.name} is another one, or bound already")
        if binding.version and stored.metadata.resource_version != binding.version:
            raise VersionConflict(f"pod {binding.name} is at another version")
        annotations = {**(stored.metadata.annotations or {}), **binding.annotations}
        self.change(binding.name, node=node, annotations=annotations)


class Stored(msgspec.Struct, frozen=True):
    """The fate of a Binding that is stored, to `node` if that is given, and then gets an error."""

    error: Any = ClusterUnavailable("the answer was lost")
    node: str = ""


class ExtenderReplica:
    """One extender with the writer that it decides through; its clock is `ahead` by seconds."""

    def __init__(
        self,
        writer: Writer,
        server: ModelServer | None,
        settings: ExtenderSettings,
        ledger: Ledger,
        evicting: Any = None,
        tell: Publish | None = None,
    ) -> None:
        self.writer = writer
        self.inventory = ClusterInventory(CLUSTER, UsageOverlay())
        writer.subscribe(lambda record: self.inventory.follow(writer.state, record))
        self.inventory.load(writer.state)
        self.moved = asyncio.Event()
        writer.subscribe(lambda _: self.moved.set())
        self.counted: list[tuple[str, ...]] = []
        self.has_counted = asyncio.Event()
        self.now = NOW
        self.ahead = 0.0
        service = ExtenderPorts(
            ledger,
            writer,
            server,
            lambda: RULES,
            self._count,
            evicting,
            tell,
        )
        self.extender = Extender(
            self.inventory,
            service,
            settings=settings,
            now=lambda: self.now,
            clock=lambda: time.monotonic() + self.ahead,
        )

    async def tell(self, command: commands.AnyCommand) -> None:
        """Have the ledger accept a command."""
        answer = await self.writer.submit(command)
        assert not isinstance(answer, Denial), answer.message

    async def register(self, node: str, announced: tuple[Card, ...], keeper: str = OWN) -> None:
        await self.tell(commands.RegisterCards(f"{CLUSTER}/{node}", keeper, announced))

    async def create(self, *pods: Pod) -> None:
        """Let the ledger know pods, as if they had been reviewed."""
        for created in pods:
            await self.tell(reservation(created))

    async def caught_up(self, other: "ExtenderReplica") -> None:
        """Return when this replica has applied what another one has."""
        async with asyncio.timeout(DEADLINE_SECONDS):
            while self.inventory.position < other.inventory.position:
                await self.moved.wait()
                self.moved.clear()

    async def places(self, pending: Pod, *nodes: str) -> list[str]:
        """Return the nodes that filter leaves."""
        answer = await self.extender.filter(ExtenderArgs(pending, None, list(nodes)))
        assert not answer.error
        return answer.node_names or []

    async def bind(self, pending: Pod, node: str) -> str:
        """Return the error of a bind."""
        meta = pending.metadata
        async with asyncio.timeout(DEADLINE_SECONDS):
            args = BindingArgs(meta.name, meta.namespace, meta.uid, node)
            return (await self.extender.bind(args)).error

    def placed(self, name: str) -> Placement | None:
        """Return where the ledger has a pod's cards."""
        placement = self.writer.state.placement(f"{CLUSTER}/{NAMESPACE}", f"pods/{name}")
        return placement if placement is not None and placement.node else None

    def _count(self, name: str, *labels: str) -> None:
        self.counted.append((name, *labels))
        self.has_counted.set()

    def uuids(self, name: str) -> list[str]:
        """Return the cards that a pod has."""
        placement = self.placed(name)
        return (
            [share.uuid for part in placement.parts for share in part.shares] if placement else []
        )


def reservation(pending: Pod) -> commands.Reserve:
    """Return the webhook's reservation of a pod; amounts do not matter here."""
    meta = pending.metadata
    amounts = {"nvidia.com/gpu": 1}
    return commands.Reserve(f"{CLUSTER}/{NAMESPACE}", f"pods/{meta.name}", meta.uid, amounts)


@contextlib.asynccontextmanager
async def replica(
    store: MemoryStore | None = None,
    server: ModelServer | None = None,
    settings: ExtenderSettings | None = None,
    ledger: Any = None,
    evicting: Any = None,
    tell: Publish | None = None,
) -> AsyncIterator[ExtenderReplica]:
    """Run an extender for the block; `ledger` may stand in front of its writer.

    Where `evicting` is given, it evicts pods there. It sends its assumed placements by `tell`.
    """
    async with running(store or MemoryStore(), now=lambda: int(NOW * 1e6)) as writer:
        asked = writer if ledger is None else ledger(writer)
        extender_replica = ExtenderReplica(
            writer, server, settings or ExtenderSettings(), asked, evicting, tell
        )
        telling = asyncio.create_task(extender_replica.extender.run())
        try:
            yield extender_replica
        finally:
            telling.cancel()
            await asyncio.gather(telling, return_exceptions=True)


def announcing(name: str, *announced: Card) -> NodeMeta:
    """Return a node as a request has it, which announces cards."""
    return NodeMeta(name, {"hami.io/node-nvidia-register": announcement(announced)})


class HeldBinding(NamedTuple):
    """A bind that has placed its pod and has not sent its Binding."""

    task: asyncio.Task[str]
    go_on: asyncio.Event


@contextlib.asynccontextmanager
async def held(
    server: ModelServer, by: ExtenderReplica, pending: Pod
) -> AsyncIterator[HeldBinding]:
    """Hold a bind to n1 before its Binding; at the end of the block it dies, unless it went on."""
    reached, go_on = asyncio.Event(), asyncio.Event()

    async def hold() -> None:
        reached.set()
        await go_on.wait()

    server.before_bind = hold
    bind = HeldBinding(asyncio.create_task(by.bind(pending, "n1")), go_on)
    await reached.wait()
    try:
        yield bind
    finally:
        server.before_bind = None
        bind.task.cancel()
        await asyncio.gather(bind.task, return_exceptions=True)
