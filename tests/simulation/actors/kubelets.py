"""Kubelets: the nodes of one cluster, their device plugins, and pods that begin to run.

A device plugin writes only annotations: the cards of the node, and the allocation of a pod's cards.
HAMi's plugin then removes its lock from the node.
"""

import asyncio
from typing import Final

import msgspec

from ledger.kube.api.objects import ApiNode, NodeCondition, NodeStatus, ObjectMeta, Pod
from simulation.actors.admitted_writes import AdmittedWrites, now
from simulation.model import hami_annotations, kinds
from simulation.model.apiserver import SimulatedApiServer, counts
from simulation.model.hami_annotations import LOCK, PHASE
from simulation.model.operations import Annotate, CardSpec, DropNode, PlaceByHami, SetNode
from simulation.model.settings import demand

PASS_SECONDS_MAX: Final = 1.5
"""Longest pause between two looks at the pods."""

SLOW_SHARE: Final = 0.5
"""Share of the looks at which a pod does not come further."""


class Kubelets:
    """Plays the nodes of one cluster."""

    def __init__(self, writing: AdmittedWrites) -> None:
        self._server: SimulatedApiServer = writing.server
        self._source = writing.source
        self._announced: dict[str, SetNode] = {}

    async def run(self) -> None:
        """Bring pods further until cancelled."""
        while True:
            await asyncio.sleep(self._source.random() * PASS_SECONDS_MAX)
            pods = self._server.pods.objects
            for name in sorted(pods):
                if pods[name].spec.node_name and self._source.random() > SLOW_SHARE:
                    self._bring_further(pods[name])

    def set_node(self, operation: SetNode) -> None:
        """Create a node, or have it announce something else."""
        if operation.cards is not None:
            self._announced[operation.name] = operation
        stored = self._server.nodes.objects.get(("", operation.name))
        meta = ObjectMeta(name=operation.name, uid=self._server.fresh_uid())
        if stored is not None:
            meta = stored.metadata
        told = {}
        if operation.cards is not None:
            told = hami_annotations.announcement(operation.cards, operation.keeper)
        lock = (meta.annotations or {}).get(LOCK)
        if lock is not None:
            told[LOCK] = lock
        ready = NodeStatus(conditions=[NodeCondition("Ready", str(operation.ready))])
        written = msgspec.structs.replace(meta, annotations=told)
        self._server.nodes.write(ApiNode(written, status=ready), meta.version())

    def drop_node(self, operation: DropNode) -> None:
        """Delete a node."""
        stored = self._server.nodes.objects.get(("", operation.name))
        if stored is not None:
            self._server.nodes.remove(("", operation.name), stored.metadata.uid)

    def calm(self) -> None:
        """Have every node that exists announce healthy cards, and be ready."""
        for _, name in sorted(self._server.nodes.objects):
            last = self._announced.get(name)
            if last is None or last.cards is None:
                continue
            cards = tuple(msgspec.structs.replace(card, healthy=True) for card in last.cards)
            self.set_node(msgspec.structs.replace(last, cards=cards, ready=True))

    def slabs(self, name: str) -> tuple[CardSpec, ...]:
        """Return the cards of a node that exists, as it announced them last."""
        last = self._announced.get(name)
        exists = ("", name) in self._server.nodes.objects
        return last.cards or () if last is not None and exists else ()

    def place_elsewise(self, operation: PlaceByHami) -> None:
        """Bind a pod that waits, as another scheduler does: with one card and no regard."""
        pod, nodes = self._server.pick(operation.pick), sorted(self._server.nodes.objects)
        if pod is None or not nodes or not _waits(pod) or _is_made(pod):
            return
        node = nodes[operation.node % len(nodes)][1]
        slabs = self.slabs(node)
        if not slabs:
            return
        uuid, asked = slabs[operation.card % len(slabs)].uuid, demand(pod)
        if asked[kinds.GPU] != 1:
            return
        told = hami_annotations.allocation(uuid, asked[kinds.MEMORY], asked.get(kinds.CORES, 0))
        told |= {hami_annotations.NODE: node, PHASE: hami_annotations.ALLOCATING}
        self._server.foreign[pod.metadata.uid] = [uuid]
        spec = msgspec.structs.replace(pod.spec, node_name=node)
        self._write(msgspec.structs.replace(pod, spec=spec), told)

    def annotate(self, operation: Annotate) -> None:
        """Write another card of its node into the annotations of a pod that is bound."""
        pod = self._server.pick(operation.pick)
        slabs = self.slabs(pod.spec.node_name) if pod is not None else ()
        if pod is None or not slabs or not counts(pod, now()):
            return
        if pod.metadata.uid in self._server.bindings:
            uuid = slabs[operation.card % len(slabs)].uuid
            self._write(pod, hami_annotations.allocation(uuid, 1_000, 0))

    def _bring_further(self, pod: Pod) -> None:
        """Hand a pod its cards, or let it run."""
        if not counts(pod, now()) or pod.metadata.deletion_timestamp is not None:
            return
        if (pod.metadata.annotations or {}).get(PHASE) == hami_annotations.ALLOCATING:
            self._write(pod, {PHASE: hami_annotations.SUCCESS})
            self._unlock(pod)
        elif not pod.status.phase:
            running = msgspec.structs.replace(
                pod, status=msgspec.structs.replace(pod.status, phase="Running")
            )
            self._server.write(running, pod.metadata.version())

    def _unlock(self, pod: Pod) -> None:
        node = self._server.nodes.objects.get(("", pod.spec.node_name))
        if node is None:
            return
        told = dict(node.metadata.annotations or {})
        if f",{pod.metadata.namespace},{pod.metadata.name}" in told.get(LOCK, ""):
            del told[LOCK]
            meta = msgspec.structs.replace(node.metadata, annotations=told)
            changed = msgspec.structs.replace(node, metadata=meta)
            self._server.nodes.write(changed, node.metadata.version())

    def _write(self, pod: Pod, told: dict[str, str]) -> None:
        meta = pod.metadata
        merged = msgspec.structs.replace(meta, annotations={**(meta.annotations or {}), **told})
        self._server.write(msgspec.structs.replace(pod, metadata=merged), meta.version())


def _is_made(pod: Pod) -> bool:
    """Return whether a controller made the pod, or the pod names one."""
    owner = pod.metadata.controller()
    return owner is not None and bool(owner.api_version)


def _waits(pod: Pod) -> bool:
    return not pod.spec.node_name and counts(pod, now())
