"""Placement reconciler: sends the commands that follow from a changed pod on cards.

A bound pod on cards that no node announces is unaccounted until a node announces them.
"""

from typing import Final

import msgspec
import structlog

from extender.settlement import (
    placed_pod_reader,
    placement_drift,
    placement_stages,
    pods_of_other_schedulers,
)
from extender.settlement.allocated_devices.device_shares import is_of_claims
from extender.settlement.allocation_annotations import AllocationAnnotations
from extender.settlement.card_reconciler_context import SETTLED, CardReconcilerContext
from extender.settlement.placed_pod_reader import PodReading
from ledger.core.evolve.envelope_charges import PODS
from ledger.core.model.cards import Placement
from ledger.core.model.commands import AnyCommand, Observe
from ledger.core.model.events import AnyEvent, CardsRegistered
from ledger.kube.api.cluster_ports import Change, Changed, Listed
from ledger.kube.api.objects import Pod
from ledger.tasks.periodic import CooperativeYield

UNACCOUNTED_MAX: Final = 10_000
"""Unaccounted pods that are kept; the next list of pods finds the others."""

CARDS: Final = "cards"
NODE: Final = "node"
"""The kinds of drift: the annotations name other cards, the pod runs on another node."""

_log: Final = structlog.get_logger("extender")


class UnaccountedPod(msgspec.Struct, frozen=True):
    """A pod on cards that no node announces, or whose annotations cannot be read."""

    pod: Pod
    node: str
    reason: str


class PlacementReconciler:
    """Follows the placed pods of one cluster; `unaccounted` are the unaccounted ones, by uid."""

    def __init__(self, context: CardReconcilerContext, allocations: AllocationAnnotations) -> None:
        self.unaccounted: dict[str, UnaccountedPod] = {}
        self._context, self._allocations = context, allocations
        self._drifting: set[str] = set()
        self._due: dict[str, None] = {}

    async def take(self, change: Change[Pod]) -> None:
        """Send the commands of a change, after the command about the pod itself."""
        if isinstance(change, Listed):
            await self._take_all(change)
        elif isinstance(change, Changed):
            if change.deleted:
                self._forget(change.object.metadata.uid)
            else:
                await self._take(change.object)

    def follow(self, event: AnyEvent) -> None:
        """Queue a node that announces cards, because unaccounted pods may be on them."""
        if isinstance(event, CardsRegistered) and self.unaccounted:
            self._due[event.node] = None

    async def look_again(self) -> None:
        """Check the unaccounted pods of nodes that have announced cards since."""
        due, self._due = self._due, {}
        waiting = (
            [uncharged.pod for uncharged in self.unaccounted.values() if uncharged.node in due]
            if due
            else []
        )
        stride = CooperativeYield()
        for pod in waiting:
            await stride.step()
            if pod.metadata.uid in self.unaccounted:
                await self._take(pod)

    async def _take_all(self, listed: Listed[Pod]) -> None:
        stride, present = CooperativeYield(), set[str]()
        for pod in listed.objects:
            present.add(pod.metadata.uid)
            await stride.step()
            await self._take(pod)
        for uid in (self.unaccounted.keys() | self._drifting) - present:
            self._forget(uid)

    async def _take(self, pod: Pod) -> None:
        context, meta = self._context, pod.metadata
        namespace, key = context.qualified(meta.namespace), PODS + meta.name
        placed = context.placement(namespace, key)
        is_ours = placed is not None and not is_of_claims(placed.parts)
        if not is_ours and not placed_pod_reader.names_cards(pod):
            return
        reading = placed_pod_reader.read(pod, context.name, context.settings.rules)
        before = self.unaccounted.pop(reading.uid, None)
        if reading.over:
            self._forget(reading.uid)
            return
        commands = self._judge(reading, placed, pod)
        _log_unaccounted(reading, before, self.unaccounted.get(reading.uid))
        for command in commands:
            await context.commands.send(command)

    def _judge(self, reading: PodReading, placed: Placement | None, pod: Pod) -> list[AnyCommand]:
        if not reading.node:
            return []
        if placed is None or not placement_drift.is_placed(placed, reading.uid):
            return self._seen(reading, pod)
        if placed.node != reading.node:
            self._drifts(reading, NODE, f"it runs on {reading.node}, its cards are {placed.node}'s")
            return [
                placement_drift.unplace_from_old_node(reading, placed),
                *self._seen(reading, pod),
            ]
        wrong = placement_drift.annotation_drift(reading, placed)
        if wrong:
            self._drifts(reading, CARDS, wrong)
        elif placement_drift.is_outdated(reading, placed):
            self._allocations.note(reading.namespace, reading.key, reading.uid)
        nodes, rules = self._context.view.state.nodes, self._context.settings.rules
        command = placement_stages.advance_if_changed(
            reading, placed, pod, nodes.get(placed.node), rules
        )
        return [command] if command is not None else []

    def _seen(self, reading: PodReading, pod: Pod) -> list[AnyCommand]:
        """Return the commands that charge a bound pod of another scheduler, if possible."""
        node, rules = self._context.view.state.nodes.get(reading.node), self._context.settings.rules
        if reading.parts is None:
            if reading.problem:
                self._keep_unaccounted(reading, pod, reading.problem)
            return []
        wrong = pods_of_other_schedulers.missing_cards(node, reading.parts)
        if wrong or node is None:
            self._keep_unaccounted(reading, pod, wrong)
            return []
        commands: list[AnyCommand] = [
            pods_of_other_schedulers.place_observed(reading, pod, node, rules)
        ]
        if not self._is_known(reading):
            demand = pods_of_other_schedulers.observed_demand(reading.parts, pod, node, rules)
            where = reading.namespace, reading.key, reading.uid, reading.version
            commands.insert(0, Observe(*where, demand, SETTLED))
        command = placement_stages.advance_for_observed(reading)
        return [*commands, command] if command is not None else commands

    def _is_known(self, reading: PodReading) -> bool:
        """Return whether a pod is in the ledger, or its command is on the way."""
        if self._context.commands.is_pending(reading.namespace, reading.key):
            return True
        entry = self._context.entry(reading.namespace, reading.key)
        return entry is not None and entry.holds_uid(reading.uid)

    def _keep_unaccounted(self, reading: PodReading, pod: Pod, reason: str) -> None:
        if len(self.unaccounted) >= UNACCOUNTED_MAX:
            return
        self.unaccounted[reading.uid] = UnaccountedPod(pod, reading.node, reason)

    def _drifts(self, reading: PodReading, kind: str, reason: str) -> None:
        """Count and log once that a pod contradicts its placement."""
        if reading.uid in self._drifting:
            return
        self._drifting.add(reading.uid)
        self._context.count("placement_drift_total", kind)
        _log.warning(
            "placement_drifts", namespace=reading.namespace, key=reading.key, reason=reason
        )

    def _forget(self, uid: str) -> None:
        self.unaccounted.pop(uid, None)
        self._drifting.discard(uid)


def _log_unaccounted(
    reading: PodReading, before: UnaccountedPod | None, now: UnaccountedPod | None
) -> None:
    """Log why a pod cannot be charged, once."""
    if now is None or (before is not None and before.reason == now.reason):
        return
    _log.warning(
        "placement_not_known", namespace=reading.namespace, key=reading.key, reason=now.reason
    )
