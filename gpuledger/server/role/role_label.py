"""Role label: keeps the label of the own pod as the role rule decides, while it runs.

Correctness does not depend on it: a review that reaches another replica is decided all the same.
"""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Final

import structlog

from gpuledger.server.role import role_rule
from gpuledger.server.role.role_rule import RoleDecision, RoleFacts, RoleMemory, SeenPod
from ledger.kube.api.cluster_errors import ClusterError, NotFound
from ledger.kube.client import pod_role
from ledger.kube.client.api_client import ApiClient
from ledger.kube.client.pod_role import PodRole
from ledger.log.peers.owner_beats import OwnerBeats
from ledger.tasks.backoff import Backoff

TICK_SECONDS: Final = 0.1
"""Time between two decisions."""

READ_SECONDS: Final = 1.0
"""Time between two reads of the own pod while it has the label, and of the pod that sends beats. A
pod that is being deleted is noticed so, before its preStop hook ends."""

UNLABELLED_READ_SECONDS: Final = 10.0
"""The same while it does not have the label, and none is due."""

WRITE_AGAIN_SECONDS_MAX: Final = 1.0
"""Longest pause after writes that failed. The first pause is one step, because a request without an
answer must not keep a replica out of the Service."""

_log: Final = structlog.get_logger("gpuledger")


class RoleLabel:
    """The label of one replica. `alone` is whether this replica answers reviews alone."""

    def __init__(
        self,
        client: ApiClient,
        beats: OwnerBeats,
        *,
        namespace: str,
        pod: str,
        is_owner: Callable[[], bool],
        is_ready: Callable[[], bool],
    ) -> None:
        """`pod` is the own pod; `is_owner` and `is_ready` are asked at each decision."""
        self.alone = False
        self._client, self._beats = client, beats
        self._namespace, self._name = namespace, pod
        self._is_owner, self._is_ready = is_owner, is_ready
        self._memory = RoleMemory()
        self._pod: SeenPod | None = None
        self._other = ("", SeenPod(0.0, labelled=False, serving=False))
        self._read_due = 0.0
        self._problem = ""
        self._missed = ""
        self._backoff = Backoff(TICK_SECONDS, WRITE_AGAIN_SECONDS_MAX)
        beats.beat_while(lambda: self.alone)

    async def run(self) -> None:
        """Decide and write until cancelled."""
        while True:
            await self.step()
            await asyncio.sleep(TICK_SECONDS)

    async def step(self) -> None:
        """Read the own pod if that is due, decide, and write the differences."""
        problem = ""
        if _now() >= self._read_due:
            problem = await self._problem_of(self._read())
        decision = self._decide()
        self._missed = decision.remove or self._missed
        if self._backoff.is_over():
            refused = await self._problem_of(self._write(decision))
            if refused:
                self._backoff.failed()
            else:
                self._backoff.reset()
            self._report(refused or problem)

    async def _problem_of(self, request: Coroutine[None, None, None]) -> str:
        """Return why a request failed, empty if it did not. A later step sends it again."""
        try:
            await request
        except ClusterError as error:
            return str(error)
        return ""

    def _decide(self) -> RoleDecision:
        beat, (name, other) = self._beats.newest, self._other
        facts = RoleFacts(
            now=_now(),
            owner=self._is_owner(),
            ready=self._is_ready(),
            beat_by=beat.by if beat is not None else "",
            beat_at=beat.at if beat is not None else None,
            echoed_at=self._beats.echoed_at,
            pod=self._pod,
            other=other if beat is not None and beat.by == name else None,
        )
        self._memory, decision = role_rule.decide(self._memory, facts)
        if decision.alone is not self.alone:
            self.alone = decision.alone
            _log.info("role_changed", alone=decision.alone)
        return decision

    async def _write(self, decision: RoleDecision) -> None:
        """Write the own label before another one is removed. Raises ClusterError."""
        if self._pod is not None and self._pod.labelled is not decision.label:
            change = pod_role.give if decision.label else pod_role.take
            self._keep(await change(self._client, self._namespace, self._name))
            _log.info("role_label_written", label=decision.label)
        if self._missed and self._is_back(self._missed):
            self._missed = ""
        if self._missed:
            await pod_role.take(self._client, self._namespace, self._missed)
            _log.warning("role_label_removed", pod=self._missed)
            self._missed = ""

    def _is_back(self, pod: str) -> bool:
        """Return whether a missed replica sends beats again."""
        beat = self._beats.newest
        return beat is not None and beat.by == pod and role_rule.is_recent(beat.at, _now())

    async def _read(self) -> None:
        """Read the own pod, and that of recent beats. Raises ClusterError."""
        self._read_due = _now() + READ_SECONDS
        self._keep(await pod_role.read(self._client, self._namespace, self._name))
        beat = self._beats.newest
        if beat is not None and beat.by and role_rule.is_recent(beat.at, _now()):
            self._other = (beat.by, await self._seen(beat.by))

    async def _seen(self, pod: str) -> SeenPod:
        """Read another pod; one that is gone is in no Service. Raises ClusterError."""
        try:
            role = await pod_role.read(self._client, self._namespace, pod)
        except NotFound:
            return SeenPod(_now(), labelled=False, serving=False)
        return SeenPod(_now(), role.labelled, role.serving)

    def _keep(self, role: PodRole | None) -> None:
        if role is not None:
            self._pod = SeenPod(_now(), role.labelled, role.serving)
            pause = READ_SECONDS if role.labelled else UNLABELLED_READ_SECONDS
            self._read_due = _now() + pause

    def _report(self, problem: str) -> None:
        if problem and problem != self._problem:
            _log.warning("role_label_not_kept", reason=problem)
        self._problem = problem


def _now() -> float:
    return asyncio.get_running_loop().time()
