"""Schedulers: one or two kube-schedulers of one cluster.

Each reads the pending pods of a moment ago and asks the extender of some replica for the best nodes
of a pod: by `select`, as the shipped scheduler is configured, or by `filter` and `prioritize`. It
then binds the pod while it continues with the next one. Two schedulers do not coordinate.
"""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Final, Protocol, TypeVar

from extender.scheduler_api.extender_wire import BindingArgs, ExtenderArgs, FilterResult
from extender.scheduler_api.extender_wire import ExtenderUnavailable as NotReady
from extender.verbs.filter_nodes import SELECT
from ledger.kube.api.objects import Pod
from simulation.actors.admitted_writes import AdmittedWrites, now
from simulation.model.apiserver import counts
from simulation.oracle.checked_extender import CheckedExtender

PASS_SECONDS_MAX: Final = 2.0
"""Longest pause between two looks at the pods that wait."""

TIMEOUT_SECONDS: Final = 8.0
"""The extender's `httpTimeout`."""

BACK_OFF_SECONDS_MAX: Final = 4.0
"""Longest pause until a pod is tried again."""

T = TypeVar("T")

Question = Callable[[CheckedExtender], Coroutine[Any, Any, T]]


class ExtenderReplica(Protocol):
    """A replica as a scheduler reaches it. `gone` is done when the process has been killed."""

    gone: "asyncio.Future[None]"

    def serves(self) -> bool:
        """Return whether the replica serves the extender."""
        ...

    def asked(self, question: Question[T]) -> "asyncio.Task[T]":
        """Start answering a question to the extender."""
        ...


class Scheduler:
    """One scheduler. It tries pods while `working` is True."""

    def __init__(
        self,
        name: str,
        verb: str,
        writing: AdmittedWrites,
        replicas: Sequence[ExtenderReplica],
        note: Callable[[str], None],
    ) -> None:
        """Find nodes by `select`, or by `filter` and then `prioritize`."""
        self.working = True
        self._name, self._verb, self._note = name, verb, note
        self._server, self._source = writing.server, writing.source
        self._replicas = replicas
        self._not_before: dict[str, float] = {}
        self._binding: set[asyncio.Task[None]] = set()

    async def run(self) -> None:
        """Work until cancelled."""
        while True:
            await asyncio.sleep(self._source.random() * PASS_SECONDS_MAX)
            if self.working:
                await self._schedule_all()

    async def _schedule_all(self) -> None:
        """Try every pod that waits, as it is now."""
        pods = self._server.pods.objects
        nodes = [name for _, name in sorted(self._server.nodes.objects)]
        for pod in [pods[name] for name in sorted(pods)] if nodes else ():
            if self._is_due(pod):
                until = now() + self._source.random() * BACK_OFF_SECONDS_MAX
                self._not_before[pod.metadata.uid] = until
                await self._schedule(pod, nodes)

    def _is_due(self, pod: Pod) -> bool:
        meta = pod.metadata
        return (
            not pod.spec.node_name
            and meta.deletion_timestamp is None
            and counts(pod, now())
            and self._not_before.get(meta.uid, 0.0) <= now()
        )

    async def _schedule(self, pod: Pod, nodes: list[str]) -> None:
        """Find the best node for a pod, and begin to bind it there."""
        args = ExtenderArgs(pod, node_names=nodes)
        answer = await (
            self._ask(lambda extender: extender.select(args))
            if self._verb == SELECT
            else self._ask(lambda extender: extender.filter(args))
        )
        best = _names_in(answer)
        if best and self._verb != SELECT:
            best = await self._best_scored(pod, best)
        if best:
            binding = asyncio.create_task(self._bind(pod, self._source.choice(best)))
            self._binding.add(binding)
            binding.add_done_callback(self._binding.discard)

    async def _best_scored(self, pod: Pod, names: list[str]) -> list[str]:
        """Return the nodes with the best score of `prioritize`, all without an answer."""
        scored = await self._ask(
            lambda extender: extender.prioritize(ExtenderArgs(pod, node_names=names))
        )
        best = max((node.score for node in scored or ()), default=0)
        return [node.host for node in scored or () if node.score == best] or names

    async def _bind(self, pod: Pod, node: str) -> None:
        meta = pod.metadata
        asked = BindingArgs(meta.name, meta.namespace, meta.uid, node)
        answer = await self._ask(lambda extender: extender.bind(asked))
        outcome = "no answer" if answer is None else answer.error or "bound"
        where = f"{meta.namespace}/{meta.name} to {node}, found by {self._verb}"
        self._note(f"{self._name} binds {where}: {outcome}")

    async def _ask(self, question: Question[T]) -> T | None:
        """Return the answer of some replica, None when there is none."""
        serving = [candidate for candidate in self._replicas if candidate.serves()]
        if not serving:
            return None
        replica = self._source.choice(serving)
        answer = replica.asked(question)
        await asyncio.wait(
            (answer, replica.gone),
            timeout=TIMEOUT_SECONDS,
            return_when=asyncio.FIRST_COMPLETED,
        )
        if not answer.done():
            return None
        try:
            return answer.result()
        except NotReady:
            return None


def _names_in(answer: FilterResult | None) -> list[str]:
    """Return the nodes of an answer, none without one."""
    if answer is None or answer.error:
        return []
    return answer.node_names or []
