"""Allocation annotations: the amounts of a pod's cards, written on the pod.

A Binding writes them. A resize is an event in the log, and this replica then writes the annotation,
because HAMi counts by the annotation after a cluster has gone back to HAMi. A write that failed or
was cut short is repaired: the list of pods that a new active replica reads shows it, and so does
each later change of the pod.
"""

import asyncio
from itertools import islice
from typing import Final, NamedTuple

import structlog

from extender.settlement import placed_pod_reader, placement_drift
from extender.settlement.card_reconciler_context import CardReconcilerContext
from ledger.core.evolve.envelope_charges import PODS
from ledger.core.model.cards import Placement
from ledger.core.model.events import AnyEvent, Resized
from ledger.core.model.qualified_names import local_name
from ledger.kube.api.cluster_errors import (
    ClusterError,
    ClusterUnavailable,
    NotFound,
    VersionConflict,
)
from ledger.kube.api.objects import Pod
from ledger.kube.hami.binding_annotations import allocated

RETRY_SECONDS: Final = 1.0
RETRY_SECONDS_MAX: Final = 30.0
"""Pauses of a pod whose write has failed; they double. Other pods do not pause, because a tenant
can make its writes fail (annotations have an upper size), and another webhook of its namespace can
be down. If the API server does not answer at all, a round ends with the first read."""

WRITES_MAX: Final = 64
"""Pods that are read in one round."""

DUE_MAX: Final = 10_000
"""Pods that wait for a write; a later change or the next list of pods finds the others."""

_log: Final = structlog.get_logger("extender")


class _Subject(NamedTuple):
    namespace: str
    key: str
    uid: str


class _Waiting(NamedTuple):
    """A pod to write: the reason of the last failure, and the loop time of the next try."""

    reason: str = ""
    at: float = 0.0
    pause: float = 0.0


_NEW: Final = _Waiting()


class AllocationAnnotations:
    """Writes the amounts of placed pods whose annotations have other amounts."""

    def __init__(self, context: CardReconcilerContext) -> None:
        self._context = context
        self._due: dict[_Subject, _Waiting] = {}

    def follow(self, event: AnyEvent) -> None:
        """Queue the pod of a resize, which is in the log now."""
        if isinstance(event, Resized):
            self.note(event.namespace, event.key, event.uid)

    def note(self, namespace: str, key: str, uid: str) -> None:
        """Queue a pod whose annotation may have other amounts than the ledger."""
        if len(self._due) < DUE_MAX:
            self._due.setdefault(_Subject(namespace, key, uid), _NEW)

    async def settle(self) -> None:
        """Read the pods that are due, and write the amounts that differ."""
        now = asyncio.get_running_loop().time()
        ripe = (subject for subject, waiting in self._due.items() if waiting.at <= now)
        for subject in list(islice(ripe, WRITES_MAX)):
            before = self._due.pop(subject)
            try:
                await self._write(subject)
            except NotFound:
                continue
            except VersionConflict:
                self._due[subject] = before  # it has changed since it was read
            except ClusterError as error:
                self._failed(subject, before, str(error))
                if isinstance(error, ClusterUnavailable):
                    break  # the others may get no answer either

    def _failed(self, subject: _Subject, before: _Waiting, reason: str) -> None:
        """Queue a pod again, after the others; log each reason once."""
        now = asyncio.get_running_loop().time()
        pause = min(2 * before.pause or RETRY_SECONDS, RETRY_SECONDS_MAX)
        self._due[subject] = _Waiting(reason, now + pause, pause)
        if reason != before.reason:
            _log.warning(
                "allocation_not_written",
                namespace=subject.namespace,
                key=subject.key,
                reason=reason,
            )

    async def _write(self, subject: _Subject) -> None:
        """Write the amounts of a pod unless it has them. Raises ClusterError."""
        namespace, name = local_name(subject.namespace), subject.key.removeprefix(PODS)
        pod = await self._context.cluster.get_pod(namespace, name)
        placed = self._context.placement(subject.namespace, subject.key)
        if pod is None or placed is None or not self._is_outdated(pod, placed, subject.uid):
            return
        changes = self._changes(placed)
        if not changes:
            return
        version = pod.metadata.resource_version
        await self._context.cluster.patch_pod_annotations(namespace, name, changes, version)
        _log.info("allocation_written", namespace=subject.namespace, key=subject.key)

    def _changes(self, placed: Placement) -> dict[str, str]:
        node = self._context.view.state.nodes[placed.node]
        try:
            return allocated(placed.parts, (*node.cards, *node.lost))
        except ValueError:
            return {}  # init containers that are over had a card that the node has lost

    def _is_outdated(self, pod: Pod, placed: Placement, uid: str) -> bool:
        """Return whether a pod is on its node of the ledger, with other amounts."""
        if pod.metadata.uid != uid or not placement_drift.is_placed(placed, uid):
            return False
        reading = placed_pod_reader.read(pod, self._context.name, self._context.settings.rules)
        if (
            reading.over
            or reading.node != placed.node
            or placement_drift.annotation_drift(reading, placed)
        ):
            return False
        return placement_drift.is_outdated(reading, placed)
