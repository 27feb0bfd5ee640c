"""Card settlement: a real writer, a model of an API server with nodes, and real settlement."""

import asyncio
import contextlib
import json
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from datetime import UTC, datetime
from typing import Any

import msgspec
from support.fakes.apiserver import FakeApiServer, Object, pod_body
from support.fakes.full_cluster import FullCluster
from support.harness.replicas import running
from support.harness.settlement import CLUSTER, RULES, World, settling

from extender.settlement.active_card_reconcilers import CardSettlement
from extender.settlement.card_reconciler_context import CardSettings
from extender.settlement.node_card_health import NodeRules
from ledger.core.model import cards
from ledger.core.model.cards import Parts, Placement
from ledger.core.model.commands import Place
from ledger.kube.api.cluster_errors import ClusterError, NotFound, VersionConflict
from ledger.kube.api.cluster_ports import Change
from ledger.kube.api.objects import ApiNode, Pod
from ledger.kube.hami import annotation_keys
from ledger.kube.hami.binding_annotations import annotations_of
from ledger.log.ledger_port import Accepted
from ledger.log.memory_log import MemoryStore
from ledger.log.writer.writer import Writer
from webhook.settlement.charge_settlement_session import SettlementSettings

REGISTER = annotation_keys.VENDOR_ANNOTATIONS["nvidia"].register
ALLOCATED = annotation_keys.VENDOR_ANNOTATIONS["nvidia"].allocated
NAMESPACE = f"{CLUSTER}/red"


def card_text(count: int = 2, **fields: Any) -> str:
    """Return a node's announcement as JSON: so many cards of 24,576 MiB in ten slots."""
    common = {"count": 10, "devmem": 24_576, "devcore": 100, "type": "NVIDIA A10", "health": True}
    listed = [
        {"id": f"GPU-{number}", "index": number, "mode": "hami-core"} | common | fields
        for number in range(count)
    ]
    return json.dumps(listed)


def node_body(name: str, *, text: str | None = None, ready: bool = True, **annotations: str):
    """Return a node that announces `text`; annotations are named by their key in `hami`."""
    given = {getattr(annotation_keys, key): value for key, value in annotations.items()}
    announcing = {REGISTER: card_text() if text is None else text}
    return {
        "metadata": {"name": name, "annotations": given | (announcing if text != "" else {})},
        "status": {
            "allocatable": {"nvidia.com/gpu": "20"},
            "conditions": [{"type": "Ready", "status": "True" if ready else "False"}],
        },
    }


class FakeCardCluster(FullCluster):
    """The model behind the ports of nodes and of binding.

    `writes` are patches of nodes, `allocations` the names of pods whose annotations were written;
    `refused` are raised by the next such writes.
    """

    def __init__(self, server: FakeApiServer) -> None:
        super().__init__(server)
        self.unreadable: ClusterError | None = None
        self.pod_reads: list[str] = []
        self.refused: deque[ClusterError] = deque()
        self.allocations: list[str] = []
        self.writes: list[tuple[str, Mapping[str, str | None], str]] = []

    def watch_nodes(self) -> AsyncGenerator[Change[ApiNode], None]:
        return self._watch("nodes")

    async def get_node(self, name: str) -> ApiNode | None:
        body = self.server.objects.get(("nodes", "", name))
        return None if body is None else msgspec.convert(body, ApiNode)

    async def get_pod(self, namespace: str, name: str) -> Pod | None:
        self.pod_reads.append(name)
        if self.unreadable is not None:
            raise self.unreadable
        body = self.server.objects.get(("pods", namespace, name))
        return None if body is None else msgspec.convert(body, Pod)

    async def patch_node_annotations(
        self, name: str, changes: Mapping[str, str | None], version: str = ""
    ) -> None:
        body = self.server.objects.get(("nodes", "", name))
        if body is None:
            raise NotFound(name)
        if version not in ("", body["metadata"]["resourceVersion"]):
            raise VersionConflict(name)
        self.writes.append((name, dict(changes), version))
        annotations = {**body["metadata"].get("annotations", {}), **changes}
        kept = {key: value for key, value in annotations.items() if value is not None}
        self.server.update("nodes", "", name, metadata={"annotations": kept})

    async def patch_pod_annotations(
        self, namespace: str, name: str, changes: Mapping[str, str], version: str
    ) -> None:
        if self.refused:
            raise self.refused.popleft()
        body = self.server.objects.get(("pods", namespace, name))
        if body is None:
            raise NotFound(name)
        if version != body["metadata"]["resourceVersion"]:
            raise VersionConflict(name)
        self.allocations.append(name)
        annotations = {**body["metadata"].get("annotations", {}), **changes}
        self.server.update("pods", namespace, name, metadata={"annotations": annotations})

    async def bind(self, binding: Any) -> None:
        raise AssertionError("settlement binds no pods")

    async def label_pod(self, *_: Any) -> None:
        raise AssertionError("settlement labels no pods")


class CardWorld(World):
    """A world with nodes. `cards` settles them beside the pods."""

    def __init__(
        self,
        writer: Writer,
        settings: SettlementSettings,
        card_settings: CardSettings,
        rules: NodeRules,
    ) -> None:
        cluster = FakeCardCluster(FakeApiServer())
        card_settlement = CardSettlement(
            writer,
            cluster,
            name=CLUSTER,
            now=lambda: self.now,
            settings=card_settings,
            rules=rules,
            count=self.count,
        )
        super().__init__(writer, settings, cluster, [card_settlement.begin])
        self.nodes = cluster
        self.cards = card_settlement

    def add_node(self, name: str, **fields: Any) -> Object:
        return self.server.create("nodes", "", node_body(name, **fields))

    def change_node(self, name: str, **fields: Any) -> None:
        body = node_body(name, **fields)
        before = self.server.objects["nodes", "", name]["metadata"]
        body["metadata"] |= {"uid": before["uid"], "namespace": ""}
        self.server.update("nodes", "", name, metadata=body["metadata"], status=body["status"])

    def registered(self, name: str) -> cards.NodeCards | None:
        return self.state.nodes.get(f"{CLUSTER}/{name}")

    def health(self, name: str) -> list[bool]:
        node = self.registered(name)
        return [card.healthy for card in node.cards] if node is not None else []

    async def settles_nodes(self, *names: str) -> None:
        """Wait until the ledger has nodes of these names, and no others with cards."""
        wanted = {f"{CLUSTER}/{name}" for name in names}
        await self.until(
            lambda: {name for name, node in self.state.nodes.items() if not node.gone} == wanted
        )

    def placed(self, name: str, namespace: str = NAMESPACE) -> Placement | None:
        return self.state.placement(namespace, f"pods/{name}")

    def add_pod(self, name: str, *, node: str = "", parts: Parts = (), **pod: Any) -> str:
        """Create a pod, bound and annotated as one that was given these parts; return its uid."""
        body = pod_body(name, **pod)
        if node:
            body["spec"]["nodeName"] = node
        if parts:
            body["metadata"]["annotations"] = self.given(parts, node)
        return self.server.create("pods", "red", body)["metadata"]["uid"]

    def given(self, parts: Parts, node: str) -> dict[str, str]:
        """Return the annotations of a pod that was given these parts."""
        known = [card_of(uuid) for uuid in cards.uuids(parts)]
        return annotations_of(parts, node, known, self.now / 1e6)

    async def place(self, name: str, uid: str, node: str, parts: Parts) -> None:
        """Place a pod, as an extender does before the Binding."""
        answer = await self.writer.submit(
            Place(NAMESPACE, f"pods/{name}", uid, f"{CLUSTER}/{node}", parts)
        )
        assert isinstance(answer, Accepted), answer

    def clock(self) -> datetime:
        return datetime.fromtimestamp(self.now / 1e6, UTC)


def card_of(uuid: str) -> cards.Card:
    return cards.Card(uuid, 0, "NVIDIA A10", 24_576, 100, 10)


@contextlib.asynccontextmanager
async def card_world(
    *,
    settle_seconds: float = 60.0,
    claim_seconds: float = 60.0,
    unready_seconds: float = 60.0,
    rules: NodeRules | None = None,
    store: MemoryStore | None = None,
) -> AsyncIterator[CardWorld]:
    """Make a world with nodes; nothing runs yet."""
    settings = SettlementSettings(rules=RULES, settle_seconds=settle_seconds)
    card_settings = CardSettings(
        rules=RULES,
        settle_seconds=settle_seconds,
        claim_seconds=claim_seconds,
        unready_seconds=unready_seconds,
    )
    async with running(store or MemoryStore()) as writer:
        yield CardWorld(writer, settings, card_settings, rules or NodeRules())


@contextlib.asynccontextmanager
async def settling_cards(world: CardWorld) -> AsyncIterator[None]:
    """Run settlement, and follow the nodes, until the block ends."""
    following = asyncio.create_task(world.cards.run())
    try:
        async with settling(world):
            yield
    finally:
        following.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await following
