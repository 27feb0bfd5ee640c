"""The verb `filter`: the nodes on which a pod fits, and for every other node the reason.

A pod that has cards of a node already, because its bind was cut short, fits on that node alone:
its cards wait for it there until it is bound or proved not to be.
"""

import asyncio
from collections.abc import Callable, Sequence
from itertools import compress
from typing import Final, NamedTuple

import msgspec
import numpy as np

from extender.bind.place_or_choose_again import placement_of
from extender.fit.feasible_nodes import FitResult, chosen_parts
from extender.fit.inventory_fit import UNKNOWN, InventoryFit
from extender.fit.node_failure_reasons import reasons_of, resolvable
from extender.fit.node_score_expression import Floats
from extender.inventory.assumed_placements import ASSUMED_SECONDS, AssumedPlacements
from extender.inventory.card_arrays import Booleans, Integers
from extender.inventory.inventory_loading import until_loaded
from extender.preemption.preemption_queue import PreemptionQueue
from extender.scheduler_api.extender_ports import ExtenderPorts
from extender.scheduler_api.extender_wire import (
    ExtenderArgs,
    ExtenderUnavailable,
    FilterResult,
    NodeMeta,
    RawNodeList,
    read_node,
)
from extender.scheduler_api.scheduling_request import (
    BoundedCache,
    SchedulingRequest,
    SchedulingRequests,
)
from extender.verbs.filter_wait import FilterWaitBudget
from ledger.core.model.denials import Denial, Reason
from ledger.core.model.qualified_names import local_name
from ledger.kube.api.objects import Pod
from ledger.log.state_change_signal import StateChangeSignal

UNREGISTERED: Final = str(Reason.NODE_UNREGISTERED)

ANSWERS_MAX: Final = 16
"""Answers that are kept for prioritize, which follows at once."""

RETRY_SECONDS: Final = 0.1
"""Pause between a record and a new fit of all nodes: a busy log has many records a second."""


class Candidates(NamedTuple):
    """The nodes of a request by name; `raw` and `read` are there when it has them in full."""

    names: Sequence[str]
    raw: Sequence[msgspec.Raw] = ()
    read: Sequence[NodeMeta] = ()


class Verdicts(NamedTuple):
    """For each candidate whether the pod fits, and by node the reasons why it does not."""

    passed: list[bool]
    failed: dict[str, str]
    unresolvable: dict[str, str]


class FilteredNodes(msgspec.Struct, frozen=True):
    """The feasibility and score of the nodes `names`.

    `fits` is about the registered nodes, which come first; the other nodes are simulated.
    """

    fits: FitResult
    names: Sequence[str]
    score: Floats
    feasible: Booleans


class NodeFilter:
    """Answers the verb `filter` about the pods of one cluster.

    `answers` has the last answers, by the uid of the pod, for pods that fit on several nodes.
    """

    def __init__(
        self,
        ports: ExtenderPorts,
        *,
        requests: SchedulingRequests,
        fit: InventoryFit,
        assumed: AssumedPlacements,
        preemptions: PreemptionQueue | None,
        signal: StateChangeSignal,
        clock: Callable[[], float],
    ) -> None:
        """`clock` is the time of the loop in seconds."""
        self.answers: BoundedCache[FilteredNodes] = BoundedCache(ANSWERS_MAX)
        self._ports, self._requests, self._fit, self._assumed = ports, requests, fit, assumed
        self._preemptions, self._signal, self._clock = preemptions, signal, clock
        self._waits = FilterWaitBudget(clock())

    async def filter(self, args: ExtenderArgs) -> FilterResult:
        """Return the nodes on which a pod fits, and the reasons of the others. Raises BadRequest.

        A pod that fits nowhere, and for which cards may become free in a moment, is tried again
        soon after the ledger moves on.
        """
        nodes = candidates(args)
        try:
            if not self._fit.inventory.loaded:
                await until_loaded(self._fit.inventory, self._clock)
        except ExtenderUnavailable as error:
            return FilterResult(error=str(error))
        assert args.pod is not None, "requests without a pod were refused"
        verdicts, now = self._verdicts(args.pod, nodes), self._clock()
        if not any(verdicts.passed):
            until = now + self._wait_seconds(args.pod.metadata.uid, now)
            while not any(verdicts.passed) and (left := until - self._clock()) > 0:
                await self._signal.wait(left)
                await asyncio.sleep(max(0.0, min(RETRY_SECONDS, until - self._clock())))
                verdicts = self._verdicts(args.pod, nodes)
        fits = any(verdicts.passed)
        answer = result(args, nodes, verdicts)
        self._ports.count("extender_answers_total", "filter", "fits" if fits else "nowhere")
        return answer

    def _wait_seconds(self, uid: str, now: float) -> float:
        claimed = self._preemptions is not None and self._preemptions.is_claimed_for(uid)
        return self._waits.seconds_for(uid, now, is_claimed=claimed)

    def _verdicts(self, pod: Pod, nodes: Candidates) -> Verdicts:
        request = self._requests.read(pod)
        if isinstance(request, Denial):
            return nowhere(nodes, request)
        if not request.needs_cards:
            return everywhere(nodes)
        placed = placement_of(self._ports.view.state, request)
        if placed is not None:
            return only(nodes, local_name(placed.node))
        verdicts, answer = filtered(self._fit, request, nodes)
        passed = sum(verdicts.passed)
        if passed == 0 and self._preemptions is not None:
            self._preemptions.want(request, list(verdicts.failed))
        if passed == 1:
            # The pod goes there: prioritize is not asked about a single node.
            self._assume(request, answer, nodes.names[verdicts.passed.index(True)])
        if passed > 1:
            self.answers[request.uid] = answer
        return verdicts

    def _assume(self, request: SchedulingRequest, answer: FilteredNodes, node: str) -> None:
        place = answer.names.index(node)
        if place < len(answer.fits.rows):
            arrays = self._fit.inventory.arrays
            parts = chosen_parts(answer.fits, place, arrays, request.devices)
            self._assumed.assume(request, node, parts, ASSUMED_SECONDS)


def candidates(args: ExtenderArgs) -> Candidates:
    """Return the nodes of a request. Raises BadRequest."""
    if args.nodes is None:
        return Candidates(args.node_names or ())
    raw = args.nodes.items or []
    read = [read_node(node) for node in raw]
    return Candidates([node.name for node in read], raw, read)


def result(args: ExtenderArgs, nodes: Candidates, verdicts: Verdicts) -> FilterResult:
    """Return the answer in the form of the request."""
    if args.nodes is None:
        names = list(compress(nodes.names, verdicts.passed))
        return FilterResult(None, names, verdicts.failed, verdicts.unresolvable)
    passed = RawNodeList(args.nodes.metadata, list(compress(nodes.raw, verdicts.passed)))
    return FilterResult(passed, None, verdicts.failed, verdicts.unresolvable)


def everywhere(nodes: Candidates) -> Verdicts:
    """Let all nodes pass: the pod wants no card."""
    return Verdicts([True] * len(nodes.names), {}, {})


def nowhere(nodes: Candidates, denial: Denial) -> Verdicts:
    """Let no node pass: no node and no eviction helps."""
    reason = f"{denial.reason}: {denial.message}"
    return Verdicts([False] * len(nodes.names), {}, dict.fromkeys(nodes.names, reason))


def only(nodes: Candidates, node: str) -> Verdicts:
    """Let the node pass where the pod has cards already."""
    reason = f"{Reason.POD_PLACED}: it has cards of {node}, where its bind may be under way"
    passed = [name == node for name in nodes.names]
    failed = {name: reason for name in nodes.names if name != node}
    return Verdicts(passed, failed, {})


def filtered(
    fit: InventoryFit, request: SchedulingRequest, nodes: Candidates
) -> tuple[Verdicts, FilteredNodes]:
    """Fit all nodes at once; unknown nodes are judged by the annotations in the request."""
    rows = fit.rows_of(nodes.names)
    unknown = np.nonzero(rows == UNKNOWN)[0]
    if not len(unknown):
        fits = fit.fits(request, rows)
        verdicts = Verdicts(fits.feasible.tolist(), {}, {})
        _enter_reasons(verdicts, nodes.names, fits)
        return verdicts, FilteredNodes(fits, nodes.names, fits.score, fits.feasible)
    fits = fit.fits(request, rows[rows != UNKNOWN])
    verdicts = Verdicts([False] * len(nodes.names), {}, {})
    names = _enter(verdicts, nodes, np.nonzero(rows != UNKNOWN)[0], fits)
    answer = FilteredNodes(fits, names, fits.score, fits.feasible)
    return verdicts, _with_simulated(fit, request, nodes, verdicts, unknown, answer)


def _with_simulated(
    fit: InventoryFit,
    request: SchedulingRequest,
    nodes: Candidates,
    verdicts: Verdicts,
    unknown: Integers,
    answer: FilteredNodes,
) -> FilteredNodes:
    """Judge unregistered nodes by their annotations, if those were sent."""
    simulated = fit.of_simulated([nodes.read[place] for place in unknown] if nodes.read else [])
    rows = simulated.rows_of([nodes.names[place] for place in unknown])
    for place in unknown[rows == UNKNOWN]:
        verdicts.unresolvable[nodes.names[place]] = UNREGISTERED
    if not (rows != UNKNOWN).any():
        return answer
    fits = simulated.fits(request, rows[rows != UNKNOWN])
    names = _enter(verdicts, nodes, unknown[rows != UNKNOWN], fits)
    return FilteredNodes(
        answer.fits,
        [*answer.names, *names],
        np.concatenate((answer.score, fits.score)),
        np.concatenate((answer.feasible, fits.feasible)),
    )


def _enter(
    verdicts: Verdicts, nodes: Candidates, places: Integers, fits: FitResult
) -> Sequence[str]:
    """Enter the answers about the nodes at these places; return their names."""
    for place in places[fits.feasible].tolist():
        verdicts.passed[place] = True
    names = [nodes.names[place] for place in places.tolist()]
    _enter_reasons(verdicts, names, fits)
    return names


def _enter_reasons(verdicts: Verdicts, names: Sequence[str], fits: FitResult) -> None:
    """Enter the reasons why the pod does not fit on some of these nodes."""
    reasons = reasons_of(fits)
    for at in np.nonzero(~fits.feasible)[0].tolist():
        where = verdicts.failed if resolvable(fits, at) else verdicts.unresolvable
        where[names[at]] = reasons[at]
