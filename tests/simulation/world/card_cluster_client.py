"""Card cluster client: one replica reads nodes and binds pods, refused, lost, or late.

A Binding in flight outlives its sender. A Binding with a lost answer may be stored, at once or
later. A label has the same faults, and admission may also remove it and answer as if it was
written.
"""

import asyncio
import random
from collections.abc import AsyncGenerator, Mapping
from enum import Enum, auto
from typing import Final

import msgspec

from ledger.kube.api.cluster_errors import ClusterUnavailable, Forbidden, NotFound, VersionConflict
from ledger.kube.api.cluster_ports import Change, PodBinding, PodEvent
from ledger.kube.api.objects import ApiNode, Pod
from simulation.engine.processes import outside
from simulation.model import apiserver
from simulation.model.apiserver import SimulatedApiServer
from simulation.model.hami_annotations import cards_in
from simulation.world.cluster_client import ClusterClient, unchanged

LATE_SECONDS_MAX: Final = 3.0
"""How late a Binding can be stored after its sender's request timed out."""

SLOW_SECONDS_MAX: Final = 2.5
"""How long a Binding can be on its way while its sender waits for the answer."""


class Fate(Enum):
    """The outcome of a Binding."""

    DELIVERED = auto()
    REFUSED = auto()
    REQUEST_LOST = auto()
    ANSWER_LOST = auto()
    LATE = auto()
    SLOW = auto()


class LabelFate(Enum):
    """The outcome of a label that is written on a pod."""

    DELIVERED = auto()
    REFUSED = auto()
    REQUEST_LOST = auto()
    ANSWER_LOST = auto()
    STRIPPED = auto()


_BAD: Final = (Fate.REFUSED, Fate.REQUEST_LOST, Fate.ANSWER_LOST, Fate.LATE, Fate.SLOW, Fate.SLOW)
_BAD_FOR_LABELS: Final = tuple(LabelFate)[1:]


class CardClusterClient(ClusterClient):
    """A cluster with nodes.

    `binding_trouble` and `label_trouble` are the shares of Bindings and of labels on pods that
    something happens to.

    Implements `Nodes` and `Allocates` of `ledger.kube.api.cluster_ports`.
    """

    def __init__(
        self,
        server: SimulatedApiServer,
        source: random.Random,
        binding_trouble: float,
        label_trouble: float,
    ) -> None:
        super().__init__(server, source)
        self._binding_trouble = binding_trouble
        self._label_trouble = label_trouble

    def calm(self) -> None:
        """Let everything work from now on."""
        super().calm()
        self._binding_trouble = self._label_trouble = 0.0

    async def get_node(self, name: str) -> ApiNode | None:
        """Read a node as of some moment during the call. Raises Unavailable."""
        await self._answer()
        node = self._server.nodes.objects.get(("", name))
        await self._hop()
        return node

    def watch_nodes(self) -> AsyncGenerator[Change[ApiNode], None]:
        """Yield all nodes and their changes."""
        return self._watch(self._server.nodes, unchanged)

    async def get_pod(self, namespace: str, name: str) -> Pod | None:
        """Read a pod as of some moment during the call. Raises Unavailable."""
        await asyncio.sleep(self._source.random() * self.list_seconds)
        pod = self._server.pods.objects.get((namespace, name))
        await self._hop()
        if self._happens(self.lists_failing):
            raise ClusterUnavailable("the read timed out")
        return pod

    async def bind(self, binding: PodBinding) -> None:
        """Bind a pod. Raises Unavailable, NotFound, Conflict, Forbidden."""
        await asyncio.shield(outside(self._bind(binding)))

    async def label_pod(
        self, namespace: str, name: str, labels: Mapping[str, str], version: str
    ) -> None:
        """Set labels of a pod. Raises Unavailable, NotFound, Conflict, Forbidden."""
        await self._hop()
        fate = LabelFate.DELIVERED
        if self._happens(self._label_trouble):
            fate = self._source.choice(_BAD_FOR_LABELS)
        if fate is LabelFate.REFUSED:
            raise Forbidden("a webhook refuses labels just now")
        if fate is not LabelFate.REQUEST_LOST:
            self._label(namespace, name, {} if fate is LabelFate.STRIPPED else labels, version)
        await self._hop()
        if fate in (LabelFate.REQUEST_LOST, LabelFate.ANSWER_LOST):
            raise ClusterUnavailable("the label was not answered")

    async def patch_node_annotations(
        self, name: str, changes: Mapping[str, str | None], version: str = ""
    ) -> None:
        """Set and remove annotations of a node. Raises Unavailable, NotFound, Conflict."""
        await self._answer()
        stored = self._server.nodes.objects.get(("", name))
        if stored is None:
            raise NotFound(name)
        merged = {**(stored.metadata.annotations or {}), **changes}
        kept = {key: text for key, text in merged.items() if text is not None}
        meta = msgspec.structs.replace(stored.metadata, annotations=kept)
        try:
            self._server.nodes.write(
                msgspec.structs.replace(stored, metadata=meta),
                int(version) if version else stored.metadata.version(),
            )
        except apiserver.Conflict as error:
            raise VersionConflict(str(error)) from error

    async def patch_pod_annotations(
        self, namespace: str, name: str, changes: Mapping[str, str], version: str
    ) -> None:
        """Set annotations of a pod. Raises Unavailable, NotFound, Conflict."""
        await self._answer()
        stored = self._server.pods.objects.get((namespace, name))
        if stored is None:
            raise NotFound(name)
        annotations = {**(stored.metadata.annotations or {}), **changes}
        meta = msgspec.structs.replace(stored.metadata, annotations=annotations)
        try:
            self._server.pods.write(msgspec.structs.replace(stored, metadata=meta), int(version))
        except apiserver.Conflict as error:
            raise VersionConflict(str(error)) from error

    async def create_event(self, event: PodEvent) -> None:
        """Take an event and discard it. Raises Unavailable."""
        del event
        await self._answer()

    def _label(self, namespace: str, name: str, labels: Mapping[str, str], version: str) -> None:
        """Write labels as an API server does: what changes nothing gives no new version."""
        stored = self._server.pods.objects.get((namespace, name))
        if stored is None:
            raise NotFound(f"{namespace}/{name}")
        meta = stored.metadata
        if meta.resource_version != version:
            raise VersionConflict(f"{name} is at {meta.resource_version}")
        before = meta.labels or {}
        if {**before, **labels} != before:
            meta = msgspec.structs.replace(meta, labels={**before, **labels})
            self._server.write(msgspec.structs.replace(stored, metadata=meta), int(version))

    async def _bind(self, binding: PodBinding) -> None:
        await self._hop()
        fate = self._source.choice(_BAD) if self._happens(self._binding_trouble) else Fate.DELIVERED
        if fate is Fate.REFUSED:
            raise Forbidden("a webhook refuses Bindings just now")
        if fate is Fate.LATE:
            later = self._source.random() * LATE_SECONDS_MAX
            asyncio.get_running_loop().call_later(later, self._store_late, binding)
        elif fate is Fate.SLOW:
            await asyncio.sleep(self._source.random() * SLOW_SECONDS_MAX)
            self._store(binding)
        elif fate is not Fate.REQUEST_LOST:
            self._store(binding)
        await self._hop()
        if fate not in (Fate.DELIVERED, Fate.SLOW):
            raise ClusterUnavailable("the Binding was not answered")

    def _store_late(self, binding: PodBinding) -> None:
        try:
            self._store(binding)
        except (VersionConflict, NotFound):
            return

    def _store(self, binding: PodBinding) -> None:
        """Write a Binding as an API server does, with all that it carries."""
        server = self._server
        stored = server.pods.objects.get((binding.namespace, binding.name))
        if stored is None:
            raise NotFound(f"{binding.namespace}/{binding.name}")
        meta = stored.metadata
        if meta.uid != binding.uid or binding.version not in ("", meta.resource_version):
            raise VersionConflict(f"{binding.name} is {meta.uid} at {meta.resource_version}")
        if stored.spec.node_name or meta.deletion_timestamp is not None:
            raise VersionConflict(f"{binding.name} is assigned to a node already, or going")
        server.bindings[meta.uid] = cards_in(binding.annotations)
        meta = msgspec.structs.replace(
            meta,
            annotations={**(meta.annotations or {}), **binding.annotations},
            labels={**(meta.labels or {}), **binding.labels},
        )
        spec = msgspec.structs.replace(stored.spec, node_name=binding.node)
        bound = msgspec.structs.replace(stored, metadata=meta, spec=spec)
        server.write(bound, stored.metadata.version())
