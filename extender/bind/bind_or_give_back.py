"""Bind or give back: the verb `bind` gets a pod cards and its Binding, or gives the cards back.

The ledger comes first, then the API server. A crash between the two leaves a placement without a
Binding. Then another extender fences that Binding, gives the cards back and starts over, or
settlement proves that there is no Binding and gives the cards back. After an unclear answer, the
next bind at this extender uses the same cards (`placement_takeover`).
"""

import contextlib
from collections.abc import Callable
from typing import Final, NamedTuple

import structlog

from extender.bind.binding_fence import BindingFence
from extender.bind.binding_writer import BindingOutcome, BindingState, BindingWriter
from extender.bind.node_lock_for_bind import HamiNodeLock
from extender.bind.place_or_choose_again import PlacementService, placement_of
from extender.bind.placement_takeover import Origin, PlacementResult
from extender.inventory.inventory_loading import until_loaded
from extender.scheduler_api.extender_ports import ExtenderPorts
from extender.scheduler_api.extender_wire import BindingArgs, BindingResult, ExtenderUnavailable
from extender.scheduler_api.scheduling_request import (
    SchedulingRequest,
    SchedulingRequests,
    version_of,
)
from ledger.core.model.cards import HAMI, Placement
from ledger.core.model.denials import Denial, sentence
from ledger.core.model.qualified_names import local_name
from ledger.kube.api.cluster_errors import ClusterError
from ledger.kube.api.cluster_ports import BindingApi
from ledger.kube.api.objects import Pod
from ledger.kube.hami.binding_annotations import annotations_of, labels_of
from ledger.log.state_change_signal import StateChangeSignal

BIND_TRIES_MAX: Final = 3
"""How often a pod is bound that has changed meanwhile, without a request for other cards."""

LOCK_AGAIN_SECONDS: Final = 0.5
"""Pause before the next try to lock a node that is locked for another pod."""

SEND_SECONDS: Final = 25.0
"""How long after a pod was placed its Binding may still be sent.

Settlement gives the cards back `settle_seconds` after the placement if the pod is not bound then,
and the API server may take 34 s over a Binding. A Binding that is sent later might be stored when
the cards belong to another pod. `bind_wait_seconds` is no more than this.
"""

LATE: Final = "no Binding is sent so long after the pod was given its cards: try again"

UNDER_WAY: Final = "another bind of the pod may be under way; it is being settled: try again"

NOT_FENCED: Final = "the fence did not change the pod, so that bind may still come through"

OTHER_REQUEST: Final = "the pod has changed and asks for other cards now: try again"

_log: Final = structlog.get_logger("extender")


class BindResult(NamedTuple):
    """The outcome of a bind, one word for metrics, and the problem if the pod is not bound."""

    outcome: str
    problem: str = ""


class Binder:
    """Answers the verb `bind` about the pods of one cluster."""

    def __init__(
        self,
        ports: ExtenderPorts,
        cluster: BindingApi,
        *,
        requests: SchedulingRequests,
        placements: PlacementService,
        signal: StateChangeSignal,
        wait_seconds: float,
        now: Callable[[], float],
    ) -> None:
        """Wait at most `wait_seconds` for obstacles that pass; `now` is Unix time in seconds."""
        self._ports, self._cluster, self._requests = ports, cluster, requests
        self._placements, self._signal = placements, signal
        self._writer, self._fence = BindingWriter(cluster), BindingFence(cluster)
        self._node_lock = HamiNodeLock(cluster, now)
        self._wait_seconds, self._now, self._clock = wait_seconds, now, placements.clock
        self._being_bound: set[str] = set()

    async def bind(self, args: BindingArgs) -> BindingResult:
        """Bind a pod to a node; the answer has the problem if it is not bound."""
        until = self._clock() + self._wait_seconds
        try:
            if not self._placements.fit.inventory.loaded:
                await until_loaded(self._placements.fit.inventory, self._clock)
            request = self._requests.newest.get(args.pod_uid) or await self._read(args)
            bound = await self._bind_once(request, args.node, until)
        except ExtenderUnavailable as error:
            bound = BindResult("unavailable", str(error))
        self._ports.count("extender_answers_total", "bind", bound.outcome)
        return BindingResult(bound.problem)

    async def _read(self, args: BindingArgs) -> SchedulingRequest:
        """Read the pod of a bind that was not filtered here. Raises ExtenderUnavailable."""
        try:
            pod = await self._cluster.get_pod(args.pod_namespace, args.pod_name)
        except ClusterError as error:
            raise ExtenderUnavailable(f"the pod cannot be read: {error}") from error
        if pod is None or (args.pod_uid and pod.metadata.uid != args.pod_uid):
            raise ExtenderUnavailable(f"pod {args.pod_namespace}/{args.pod_name} is gone")
        request = self._requests.read(pod)
        if isinstance(request, Denial):
            raise ExtenderUnavailable(sentence(request))
        return request

    async def _bind_once(self, request: SchedulingRequest, node: str, until: float) -> BindResult:
        """Bind a pod that no other call binds."""
        if request.pod.spec.node_name == node:
            return BindResult("bound")
        if request.uid in self._being_bound:
            raise ExtenderUnavailable(f"{request.key} is being bound already")
        self._being_bound.add(request.uid)
        try:
            if request.needs_cards:
                bound = await self._bind_to_cards(request, node, until)
            else:
                bound = await self._bind_without_cards(request, node)
        finally:
            self._being_bound.discard(request.uid)
        if not bound.problem:
            self._requests.newest.pop(request.uid, None)
        return bound

    async def _bind_to_cards(
        self, request: SchedulingRequest, node: str, until: float
    ) -> BindResult:
        """Bind a pod to cards; a pod that has changed meanwhile is tried again."""
        for _ in range(BIND_TRIES_MAX):
            outcome = await self._try(request, node, until)
            if isinstance(outcome, BindResult):
                return outcome
            again = self._requests.read(outcome)
            if isinstance(again, Denial) or again.devices != request.devices:
                return BindResult("refused", OTHER_REQUEST)
            request = again
        return BindResult("changed", "the pod changes too often: try again")

    async def _try(self, request: SchedulingRequest, node: str, until: float) -> BindResult | Pod:
        """Place a pod and write its Binding; return the pod if it has changed."""
        placed = await self._placements.place(request, node, until)
        if placed.standing is not None:
            return await self._fenced(request, node, placed.standing)
        if placed.problem:
            return BindResult("lost", placed.problem)
        if placed.origin is Origin.BOUND:
            return BindResult("bound")
        if placed.origin is Origin.OTHERS:
            return BindResult("unclear", UNDER_WAY)
        return await self._write_binding(request, node, until, placed)

    async def _write_binding(
        self, request: SchedulingRequest, node: str, until: float, placed: PlacementResult
    ) -> BindResult | Pod:
        """Lock the node if it has locks, and write the one Binding of a placement, if in time."""
        where = f"{request.cluster}/{node}"
        known = self._ports.view.state.nodes.get(where)
        if known is not None and known.keeper == HAMI:
            problem = await self._locked(request, node, until)
            if problem:
                await self._undo(request, where, placed)
                return BindResult("locked", problem)
        if self._clock() > placed.since + SEND_SECONDS:
            written = BindingOutcome(BindingState.REFUSED, LATE, request.pod)
        else:
            cards = (*known.cards, *known.lost) if known is not None else ()
            labels = labels_of(node)
            annotations = annotations_of(placed.parts, node, cards, self._now())
            written = await self._writer.write(request.pod, node, annotations, labels)
        if written.outcome is BindingState.BOUND:
            return BindResult("bound")
        if written.outcome is BindingState.CHANGED and written.pod is not None:
            await self._give_back(request, where, request.version)
            return written.pod
        if written.outcome in (BindingState.REFUSED, BindingState.CHANGED):
            await self._undo(request, where, placed)
        if written.outcome is BindingState.UNCLEAR:
            standing = placement_of(self._ports.view.state, request)
            self._placements.takeover.keep(request, placed, standing)
        return _result_of(written)

    async def _bind_without_cards(self, request: SchedulingRequest, node: str) -> BindResult:
        """Write the Binding of a pod without cards, and again if the pod has changed."""
        pod = request.pod
        for _ in range(BIND_TRIES_MAX):
            written = await self._writer.write(pod, node, {}, {})
            if written.outcome is not BindingState.CHANGED or written.pod is None:
                break
            pod = written.pod
            again = self._requests.read(pod)
            if isinstance(again, Denial) or again.devices != request.devices:
                break
        return _result_of(written)

    async def _fenced(
        self, request: SchedulingRequest, node: str, standing: Placement
    ) -> BindResult | Pod:
        """Give back the cards of another call's placement once its Binding cannot come any more.

        Returns the pod with which to start over.
        """
        if self._clock() < self._placements.fence_wait.over_at(request, standing):
            return BindResult("unclear", UNDER_WAY)
        try:
            pod = await self._fence.fence(request.pod, standing.version)
        except ClusterError as error:
            return BindResult("unclear", f"{UNDER_WAY} ({error})")
        if pod is None:
            return BindResult("refused", "the pod is gone")
        where = pod.spec.node_name
        if where:
            return (
                BindResult("bound")
                if where == node
                else BindResult("refused", f"it is bound to {where}")
            )
        if version_of(pod) <= standing.version:
            return BindResult("unclear", f"{UNDER_WAY} ({NOT_FENCED})")
        if await self._give_back(request, standing.node, standing.version):
            self._placements.fence_wait.note_fence(request)
            _log.info("binding_fenced", namespace=request.namespace, key=request.key)
        return pod

    async def _locked(self, request: SchedulingRequest, node: str, until: float) -> str:
        """Lock a node that hands out cards to one pod at a time; return the problem, if any."""
        while True:
            try:
                problem = await self._node_lock.lock(request.pod, node)
            except ClusterError as error:
                problem = f"node {node} cannot be locked: {error}"
            if not problem or self._clock() >= until:
                return problem
            await self._signal.wait(LOCK_AGAIN_SECONDS)

    async def _undo(self, request: SchedulingRequest, where: str, placed: PlacementResult) -> None:
        """Give back the cards that this call took; the Binding of an earlier call may need its."""
        if placed.origin is Origin.NEW:
            await self._give_back(request, where, request.version)

    async def _give_back(self, request: SchedulingRequest, where: str, version: int) -> bool:
        """Give back the cards and the lock of a placement whose Binding cannot come any more.

        Another extender may have fenced it as well, and have placed the pod again: then placement
        and lock are that extender's. Returns False when there was nothing left.
        """
        given = await self._placements.unplace(request, where, version)
        state = self._ports.view.state
        standing, known = placement_of(state, request), state.nodes.get(where)
        others = standing is not None and standing.node == where and standing.version != version
        if not others and known is not None and known.keeper == HAMI:
            # A lock that stays is that of a pod without cards: it expires, or settlement ends it.
            with contextlib.suppress(ClusterError):
                await self._node_lock.unlock(request.pod, local_name(where))
        return given


def _result_of(written: BindingOutcome) -> BindResult:
    if written.outcome is BindingState.BOUND:
        return BindResult("bound")
    if written.outcome is BindingState.UNCLEAR:
        remedy = "its cards are kept for it, and the next try takes them up"
        problem = f"whether it is bound is not known: {written.reason}; {remedy}"
        return BindResult("unclear", problem)
    return BindResult(written.outcome.value, written.reason)
