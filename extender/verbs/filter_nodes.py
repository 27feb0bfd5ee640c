"""The verbs `filter` and `select`: the nodes on which a pod fits, or the best of them.

If there are none, the answer has the reason of every node. A pod that has cards of a node already,
because its bind was cut short, fits on that node alone: its cards wait for it there until it is
bound or proved not to be.
"""

import asyncio
from collections.abc import Callable
from typing import Final

from extender.bind.place_or_choose_again import placement_of
from extender.fit.feasible_nodes import chosen_parts
from extender.fit.inventory_fit import InventoryFit
from extender.inventory.assumed_placements import ASSUMED_SECONDS, AssumedPlacements
from extender.inventory.inventory_loading import until_loaded
from extender.preemption.preemption_queue import PreemptionQueue
from extender.scheduler_api.extender_ports import ExtenderPorts
from extender.scheduler_api.extender_wire import ExtenderArgs, ExtenderUnavailable, FilterResult
from extender.scheduler_api.scheduling_request import (
    BoundedCache,
    SchedulingRequest,
    SchedulingRequests,
)
from extender.verbs import node_verdicts
from extender.verbs.filter_wait import FilterWaitBudget
from extender.verbs.node_ranking import LaterNodes, best_nodes
from extender.verbs.node_verdicts import Candidates, FilteredNodes, Verdicts
from ledger.core.model.denials import Denial
from ledger.core.model.qualified_names import local_name
from ledger.kube.api.objects import Pod
from ledger.log.state_change_signal import StateChangeSignal

ANSWERS_MAX: Final = 16
"""Answers that are kept for prioritize, which follows at once."""

RETRY_SECONDS: Final = 0.1
"""Pause between a record and a new fit of all nodes: a busy log has many records a second."""

FILTER: Final = "filter"
SELECT: Final = "select"


class NodeFilter:
    """Answers the verbs `filter` and `select` about the pods of one cluster.

    `answers` has the last answers of `filter`, by the uid of the pod, for pods that fit on several
    nodes.
    """

    def __init__(
        self,
        ports: ExtenderPorts,
        *,
        requests: SchedulingRequests,
        fit: InventoryFit,
        assumed: AssumedPlacements,
        later: LaterNodes,
        preemptions: PreemptionQueue | None,
        signal: StateChangeSignal,
        clock: Callable[[], float],
    ) -> None:
        """`clock` is the time of the loop in seconds."""
        self.answers: BoundedCache[FilteredNodes] = BoundedCache(ANSWERS_MAX)
        self._ports, self._requests, self._fit, self._assumed = ports, requests, fit, assumed
        self._later, self._preemptions, self._signal, self._clock = (
            later,
            preemptions,
            signal,
            clock,
        )
        self._waits = FilterWaitBudget(clock())

    async def answer(self, args: ExtenderArgs, verb: str) -> FilterResult:
        """Return the nodes on which a pod fits, of these only the best ones to `select`.

        Raises BadRequest. A pod that fits nowhere, and for which cards may become free in a moment,
        is tried again soon after the ledger moves on.
        """
        nodes = node_verdicts.candidates(args)
        try:
            if not self._fit.inventory.loaded:
                await until_loaded(self._fit.inventory, self._clock)
        except ExtenderUnavailable as error:
            return FilterResult(error=str(error))
        assert args.pod is not None, "requests without a pod were refused"
        verdicts, now = self._verdicts(args.pod, nodes, verb), self._clock()
        if not any(verdicts.passed):
            until = now + self._wait_seconds(args.pod.metadata.uid, now)
            while not any(verdicts.passed) and (left := until - self._clock()) > 0:
                await self._signal.wait(left)
                await asyncio.sleep(max(0.0, min(RETRY_SECONDS, until - self._clock())))
                verdicts = self._verdicts(args.pod, nodes, verb)
        outcome = "fits" if any(verdicts.passed) else "nowhere"
        self._ports.count("extender_answers_total", verb, outcome)
        return node_verdicts.result(args, nodes, verdicts)

    def _wait_seconds(self, uid: str, now: float) -> float:
        claimed = self._preemptions is not None and self._preemptions.is_claimed_for(uid)
        return self._waits.seconds_for(uid, now, is_claimed=claimed)

    def _verdicts(self, pod: Pod, nodes: Candidates, verb: str) -> Verdicts:
        request = self._requests.read(pod)
        if isinstance(request, Denial):
            return node_verdicts.nowhere(nodes, request)
        if not request.needs_cards:
            return node_verdicts.everywhere(nodes)
        placed = placement_of(self._ports.view.state, request)
        if placed is not None:
            return node_verdicts.only(nodes, local_name(placed.node))
        answer = node_verdicts.filtered(self._fit, request, nodes)
        if verb == SELECT and answer.feasible.any():
            return self._best(request, nodes, answer)
        return self._all(request, nodes, answer)

    def _best(
        self, request: SchedulingRequest, nodes: Candidates, answer: FilteredNodes
    ) -> Verdicts:
        """Let the best nodes pass, and assume that the pod goes to the first of them.

        The scheduler chooses by scores of its own among several, so that it may go elsewhere.
        """
        later = self._later.of(request, answer.fits)
        best = best_nodes(answer.score, answer.feasible, later)
        self._assume(request, answer, int(best.argmax()))
        return node_verdicts.passing(nodes, answer, best)

    def _all(
        self, request: SchedulingRequest, nodes: Candidates, answer: FilteredNodes
    ) -> Verdicts:
        """Let all feasible nodes pass. If there are none, evictions may help."""
        verdicts, passed = node_verdicts.explained(nodes, answer), int(answer.feasible.sum())
        if passed == 0 and self._preemptions is not None:
            self._preemptions.want(request, list(verdicts.failed))
        if passed == 1:
            # The pod goes there: prioritize is not asked about a single node.
            self._assume(request, answer, int(answer.feasible.argmax()))
        if passed > 1:
            self.answers[request.uid] = answer
        return verdicts

    def _assume(self, request: SchedulingRequest, answer: FilteredNodes, place: int) -> None:
        """Assume that a pod is on its way to the node at this index of the answer."""
        if place < len(answer.fits.rows):
            arrays = self._fit.inventory.arrays
            parts = chosen_parts(answer.fits, place, arrays, request.devices)
            self._assumed.assume(request, answer.names[place], parts, ASSUMED_SECONDS)
