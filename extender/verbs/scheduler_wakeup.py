"""Scheduler wake-up: a Node annotation that lets kube-scheduler retry pods that now fit.

kube-scheduler retries a pod that an extender refused after an event of the cluster, or after five
minutes. It reads the end of a pod before the ledger has the release, asks too early, and is
refused. Settlement, claims, limits and assumed placements also free cards without any event. So the
extender tries the pods that it refused again, and changes an annotation of a Node where one fits.
This is an event after which kube-scheduler retries all pods that an extender refused.

Each extender wakes the scheduler that asked it, after its own state has the room, whichever replica
settled the release. There is at most one write in `LOOK_SECONDS`, for a pod that has fitted at two
looks without a question of the scheduler in between.
"""

import asyncio
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Final

import numpy as np
import structlog

from extender.bind.place_or_choose_again import placement_of
from extender.fit.inventory_fit import UNKNOWN, InventoryFit
from extender.inventory.card_arrays import Booleans, Integers
from extender.scheduler_api.extender_ports import ExtenderPorts
from extender.scheduler_api.extender_wire import FilterResult
from extender.scheduler_api.scheduling_request import SchedulingRequest, SchedulingRequests
from extender.verbs.refused_pods import CardsVersion, RefusedGroup, RefusedPods
from ledger.kube.api.cluster_errors import ClusterError
from ledger.kube.api.cluster_ports import BindingApi
from ledger.kube.api.objects import Pod
from ledger.kube.hami import annotation_keys
from ledger.tasks.backoff import Backoff
from ledger.tasks.periodic import run_periodically

LOOK_SECONDS: Final = 1.0
"""How often the refused pods are tried again."""

PAUSE_SECONDS_MAX: Final = 60.0
"""The longest pause after writes that failed."""

_log: Final = structlog.get_logger("extender")


class SchedulerWakeUp:
    """Wakes the scheduler for refused pods of one cluster, as long as `run` runs."""

    def __init__(
        self,
        ports: ExtenderPorts,
        cluster: BindingApi,
        *,
        requests: SchedulingRequests,
        fit: InventoryFit,
        now: Callable[[], float],
        clock: Callable[[], float],
    ) -> None:
        """`now` is Unix time, `clock` the time of the loop, both in seconds."""
        self._ports, self._cluster, self._requests, self._fit = ports, cluster, requests, fit
        self._now, self._clock = now, clock
        self._refused = RefusedPods()
        self._backoff = Backoff(LOOK_SECONDS, PAUSE_SECONDS_MAX)

    def answered(self, pod: Pod, answer: FilterResult) -> None:
        """Remember a pod that fits nowhere by the current state, and forget a pod that fits."""
        if answer.node_names or (answer.nodes is not None and answer.nodes.items):
            if fitting := self._requests.newest.get(pod.metadata.uid):
                self._refused.discard(fitting)
            return
        request = self._requests.read(pod)
        if answer.error or not isinstance(request, SchedulingRequest):
            return
        names = [*(answer.failed_nodes or ()), *(answer.failed_and_unresolvable_nodes or ())]
        excluded = np.packbits(self._rows_except(names)).tobytes()
        self._refused.add(request, excluded, self._version(), self._clock())

    async def run(self) -> None:
        """Look at the refused pods periodically until cancelled."""
        await run_periodically(LOOK_SECONDS, self.look)

    async def look(self) -> None:
        """Try refused pods again; wake the scheduler for one that fitted at the last look, too."""
        if not len(self._refused) or not self._fit.inventory.loaded or not self._backoff.is_over():
            return
        version = self._version()
        for group in self._refused.due(version, self._clock()):
            node, fitted = self._node_for_any(group), group.fit
            group.fit = bool(node)
            if not node:
                group.version = version
            elif fitted:
                await self._wake(group, node)
                return
            await asyncio.sleep(0)  # the answers to the scheduler go first

    async def _wake(self, group: RefusedGroup, node: str) -> None:
        # A value that no other extender writes: an unchanged annotation would be no event.
        text = datetime.fromtimestamp(self._now(), UTC).isoformat()
        pod = group.request.key
        try:
            await self._cluster.patch_node_annotations(node, {annotation_keys.ROOM_FOUND: text})
        except ClusterError as error:
            self._backoff.failed()
            _log.warning("scheduler_not_woken", node=node, pod=pod, reason=str(error))
            return
        self._refused.remove(group)
        self._backoff.reset()
        self._ports.count("scheduler_wakeups_total")
        _log.info("scheduler_woken", node=node, pod=pod, namespace=group.request.namespace)

    def _node_for_any(self, group: RefusedGroup) -> str:
        """Return a node on which a pod of a group fits now, empty if there is none.

        If cards are kept for pods of the group, those fit sooner than the others.
        """
        known = map(self._requests.newest.get, self._fit.inventory.overlay.preemptors())
        preemptors = [pod for pod in known if pod is not None and group.may_have(pod)]
        nodes = (self._node_for(pod, group.key.excluded) for pod in preemptors or [group.request])
        return next(filter(None, nodes), "")

    def _node_for(self, request: SchedulingRequest, excluded: bytes) -> str:
        """Return a node on which a pod fits now, empty if there is none.

        A node that was registered after the refusal counts, because nothing excluded it.
        """
        if placement_of(self._ports.view.state, request) is not None:
            return ""
        inventory = self._fit.inventory
        rows = self._known_rows()
        bits = np.unpackbits(np.frombuffer(excluded, np.uint8)).astype(np.bool_)
        bits = np.pad(bits, (0, max(0, inventory.arrays.rows - len(bits))))
        rows = rows[~bits[rows]]
        feasible = np.nonzero(self._fit.fits(request, rows).feasible)[0] if len(rows) else rows
        return inventory.names[int(rows[feasible[0]])] if len(feasible) else ""

    def _rows_except(self, names: Sequence[str]) -> Booleans:
        """Return for each row whether its node is registered and not one of these."""
        rows = self._fit.rows_of(names)
        others = np.zeros(self._fit.inventory.arrays.rows, np.bool_)
        others[self._known_rows()] = True
        others[rows[rows != UNKNOWN]] = False
        return others

    def _known_rows(self) -> Integers:
        rows = self._fit.inventory.rows
        return np.fromiter(rows.values(), np.int64, len(rows))

    def _version(self) -> CardsVersion:
        inventory = self._fit.inventory
        inventory.overlay.expire(self._clock())
        return CardsVersion(inventory.position, len(inventory.overlay), inventory.arrays.layout)
