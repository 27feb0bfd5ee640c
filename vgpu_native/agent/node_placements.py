"""Node placements: applies the log's records to the pods that are placed on one node.

A node needs only its own placements of the ledger. So records are decoded and their chain is
checked, but the state of other nodes and quotas is not folded: an agent takes as little memory in
a large cluster as in a small one. The writers, which fold everything, check the balances.
"""

from collections.abc import Iterable
from typing import Final

import msgspec

from ledger.core.evolve.envelope_charges import PODS
from ledger.core.model.cards import Parts, Stage
from ledger.core.model.events import (
    OBJECT,
    Advanced,
    AnyEvent,
    Cause,
    Committed,
    Observed,
    Placed,
    Released,
    Resized,
    Unplaced,
)
from ledger.core.model.qualified_names import local_name
from ledger.core.model.state import State
from ledger.log import records
from ledger.log.log_port import Lost

CREATION: Final = 0
"""The base of an attempt that creates a pod."""

Place = tuple[str, str]
"""A qualified namespace, and a key in it."""


class PlacedPod(msgspec.Struct, frozen=True):
    """A pod on the node and its containers' shares of cards.

    `namespace` is qualified by the cluster. `time`, when it was placed, in µs of Unix time.
    """

    namespace: str
    key: str
    uid: str
    parts: Parts
    time: int
    stage: int = Stage.PROPOSED
    initialised: bool = False

    @property
    def name(self) -> str:
        """The pod's own name."""
        return self.key.removeprefix(PODS)

    @property
    def space(self) -> str:
        """The pod's namespace in its cluster."""
        return local_name(self.namespace)


class NodeImage(msgspec.Struct, frozen=True):
    """The placements at a position: `node` is qualified, `hash` is that of the record there."""

    node: str
    position: int = 0
    hash: bytes = bytes(32)
    residents: tuple[PlacedPod, ...] = ()


class NodePlacements:
    """The placements of a node at a position of the log."""

    def __init__(self, image: NodeImage) -> None:
        """Go on from an image."""
        self.node: Final = image.node
        self.position, self.hash = image.position, image.hash
        self._residents: dict[Place, PlacedPod] = {
            (pod.namespace, pod.key): pod for pod in image.residents
        }

    @property
    def residents(self) -> tuple[PlacedPod, ...]:
        """The pods on the node, in the order in which they were placed."""
        return tuple(sorted(self._residents.values(), key=lambda pod: (pod.time, pod.namespace)))

    def image(self) -> NodeImage:
        """Return the placements, to resume from later."""
        return NodeImage(self.node, self.position, self.hash, self.residents)

    def take(self, position: int, payload: bytes) -> bool:
        """Apply the record at the next position; return whether a placement of the node changed.

        Raises Lost if the record does not follow from the one before, and NewerSchema.
        """
        try:
            record, digest = records.decode(payload)
        except Lost as error:
            raise Lost(f"position {position}: {error}") from error
        if position != self.position + 1 or record.position != position:
            raise Lost(f"position {position}: it does not follow on {self.position}")
        if record.previous != self.hash:
            raise Lost(f"position {position}: the record does not follow from the one before it")
        before = dict(self._residents)
        for item in record.items:
            self._apply(item.event, record.time)
        self.position, self.hash = position, digest
        return self._residents != before

    def _apply(self, event: AnyEvent, time: int) -> None:
        if isinstance(event, Placed):
            self._place(event, time)
        elif isinstance(event, Advanced):
            self._replace(event, stage=event.stage, initialised=event.initialised)
        elif isinstance(event, Resized):
            self._replace(event, parts=event.parts)
        elif isinstance(event, Unplaced):
            self._end(event.namespace, event.key, event.uid)
        elif isinstance(event, Released):
            # The end of an update does not end the pod.
            if event.base in (OBJECT, CREATION):
                self._end(event.namespace, event.key, event.uid)
        elif isinstance(event, Committed | Observed):
            self._succeed(event.namespace, event.key, event.uid)

    def _place(self, event: Placed, time: int) -> None:
        where = (event.namespace, event.key)
        if event.node == self.node:
            stage = Stage.BOUND if event.cause == Cause.SEEN else Stage.PROPOSED
            self._residents[where] = PlacedPod(*where, event.uid, event.parts, time, stage)
        else:
            self._residents.pop(where, None)

    def _replace(self, event: Advanced | Resized, **changes: object) -> None:
        where = (event.namespace, event.key)
        pod = self._residents.get(where)
        if pod is not None and pod.uid == event.uid:
            self._residents[where] = msgspec.structs.replace(pod, **changes)

    def _end(self, namespace: str, key: str, uid: str) -> None:
        pod = self._residents.get((namespace, key))
        if pod is not None and pod.uid == uid:
            del self._residents[namespace, key]

    def _succeed(self, namespace: str, key: str, uid: str) -> None:
        """Remove the earlier pod of a name that another pod has now."""
        pod = self._residents.get((namespace, key))
        if pod is not None and pod.uid != uid:
            del self._residents[namespace, key]


def image_of(state: State, node: str) -> NodeImage:
    """Return a node's placements in a ledger's state, to resume from."""
    return NodeImage(node, state.position, state.hash, tuple(_residents(state, node)))


def _residents(state: State, node: str) -> Iterable[PlacedPod]:
    for namespace, key in state.residents.get(node, ()):
        placed = state.namespaces[namespace].placed[key]
        yield PlacedPod(
            namespace,
            key,
            placed.uid,
            placed.parts,
            placed.time,
            placed.stage,
            placed.initialised,
        )
