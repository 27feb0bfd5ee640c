"""Gate opener: reserves for pods behind the scheduling gate, and removes their gates.

If the policy of its namespace lets pods wait, a pod that exceeds a quota is created behind a
scheduling gate and charged nothing. Its gate is removed once the ledger has reserved its demand.
`gate_queue` decides which pod is tried next.
"""

import asyncio
from datetime import UTC, datetime
from itertools import islice
from typing import Final

import structlog

from ledger.core.model.commands import Reserve
from ledger.core.model.denials import Denial, Reason
from ledger.core.model.qualified_names import local_name
from ledger.kube.api.cluster_errors import ClusterError, NotFound, VersionConflict
from ledger.kube.api.objects import Pod
from ledger.kube.api.pod_gates import GATE
from ledger.kube.client.pod_event_queue import PodEventQueue
from ledger.kube.requests.pod_demand import Demand, demand_of
from ledger.log.ledger_port import Ledger
from ledger.log.records import Record
from ledger.tasks.backoff import Backoff
from ledger.tasks.periodic import run_periodically
from webhook.gates.gate_queue import GateQueue, GateQueues, WaitingPod
from webhook.gates.waiting_events import PodWait, WaitingEvents
from webhook.gates.waiting_report import WaitingPage, WaitingQuestion, waiting_page
from webhook.settlement.charge_settlement_session import WATCHED, SettlementSession
from webhook.settlement.observation_commands import ObservedObject, is_reserved

TRIES_MAX: Final = 64
"""Reservations that are attempted in one round."""

SUBMIT_SECONDS: Final = 30.0
"""Deadline of one reservation, well above the ledger's own."""

RETRY_SECONDS: Final = 1.0
RETRY_SECONDS_MAX: Final = 60.0

_UNDECIDED: Final = frozenset(
    {Reason.OVERLOADED, Reason.LOG_FULL, Reason.LEDGER_UNAVAILABLE, Reason.LEDGER_STOPPED}
)
_NO_TIMESTAMP: Final = datetime(1970, 1, 1, tzinfo=UTC)
_log: Final = structlog.get_logger("webhook")


class GateOpener:
    """Reserves for waiting pods and removes their gates."""

    def __init__(self, session: SettlementSession, ledger: Ledger) -> None:
        """Prepare; `start` begins the tasks. `ledger` answers each reservation."""
        self._session = session
        self._ledger = ledger
        self._cluster = session.cluster
        self._policies = session.context.policies
        self._queues = GateQueues()
        self._queued = PodEventQueue(session.cluster, "settlement", count=session.count)
        self._events = WaitingEvents(self._queued, self._waits)
        self._backoff = Backoff(RETRY_SECONDS, RETRY_SECONDS_MAX)

    def start(self, tasks: asyncio.TaskGroup) -> None:
        """Begin to remove gates, and to write the events of waiting pods."""
        tick = self._session.tick_seconds
        tasks.create_task(run_periodically(tick, self.admit_waiting))
        tasks.create_task(run_periodically(tick, self.write_events))
        tasks.create_task(self._queued.run())

    @property
    def waiting(self) -> int:
        """The number of waiting pods."""
        return len(self._queues)

    def waiting_seconds_max(self) -> float:
        """Return the age of the oldest waiting pod in seconds, 0 if none waits."""
        oldest = self._queues.oldest()
        if oldest is None:
            return 0.0
        return max(0.0, self._session.now() / 1e6 - oldest.timestamp())

    def waiting_page(self, question: WaitingQuestion) -> WaitingPage:
        """Return a page of the waiting pods."""
        return waiting_page(self._queues, self._session.context.name, question)

    def note(self, pod: Pod, seen: ObservedObject) -> None:
        """Take note of an observed pod, which may wait or not."""
        if not seen.gated or seen.cause or seen.problem or pod.metadata.deletion_timestamp:
            self._forget(seen.namespace, seen.uid)
            return
        demand = demand_of(pod, self._session.context.rules)
        unknown = demand.unknown if isinstance(demand, Demand) else ""
        created = pod.metadata.creation_timestamp or _NO_TIMESTAMP
        self._queues.add(WaitingPod(seen, created, unknown))
        self._events.note((seen.namespace, seen.uid), asyncio.get_running_loop().time())

    def relist(self) -> None:
        """Forget all pods, because all of them are about to be noted again."""
        self._queues.clear()

    def follow(self, record: Record) -> None:
        """Wake the namespaces that wait for accounts that a record changes."""
        if self._queues.by_namespace:
            self._queues.wake(record, self._session.view.state)

    async def write_events(self) -> None:
        """Queue the events that are due."""
        self._events.write(asyncio.get_running_loop().time())

    async def admit_waiting(self) -> None:
        """Admit pods until all namespaces sleep, `TRIES_MAX` is reached, or a reservation fails."""
        if not self._backoff.is_over():
            return
        clock = asyncio.get_running_loop().time
        for queue, pod in islice(self._queues.turns(clock), TRIES_MAX):
            if not await self._admit(queue, pod):
                self._backoff.failed()
                return
        self._backoff.reset()

    async def _admit(self, queue: GateQueue, pod: WaitingPod) -> bool:
        """Reserve for a pod and remove its gate; return whether to continue with other pods."""
        seen = pod.seen
        entry = self._session.entry(seen.namespace, seen.key)
        if seen.demand and not is_reserved(entry, seen):
            denial = await self._reserve(queue, pod)
            if denial is not None:
                if denial.reason in _UNDECIDED:
                    return False
                obstacle = queue.keep_waiting(pod, denial, asyncio.get_running_loop().time())
                self._events.note_obstacle((seen.namespace, seen.uid), obstacle)
                return True
        return await self._open(queue, pod)

    async def _reserve(self, queue: GateQueue, pod: WaitingPod) -> Denial | None:
        seen = pod.seen
        policy = self._policies.of(local_name(seen.namespace))
        command = Reserve(
            seen.namespace,
            seen.key,
            seen.uid,
            seen.demand,
            actor=WATCHED,
            unknown=pod.unknown,
            root=seen.root,
            traits=seen.traits,
            forced=policy.mode != "enforce",
            own_holders=policy.foreign_holders == "none",
        )
        # The first denial of a pod is kept in the log already; a dry run adds no other.
        denial = await self._submit(command, dry_run=True) if seen.uid in queue.refused else None
        if denial is None:
            denial = await self._submit(command)
            if denial is not None and denial.reason not in _UNDECIDED:
                queue.refused.add(seen.uid)
        return denial

    async def _submit(self, command: Reserve, *, dry_run: bool = False) -> Denial | None:
        try:
            async with asyncio.timeout(SUBMIT_SECONDS):
                answer = await self._ledger.submit(command, dry_run=dry_run)
        except TimeoutError:
            return Denial(Reason.LEDGER_UNAVAILABLE, "no answer in time", transient=True)
        return answer if isinstance(answer, Denial) else None

    async def _open(self, queue: GateQueue, pod: WaitingPod) -> bool:
        """Remove a pod's gate; return whether to continue with other pods."""
        queue.pods.pop(pod.seen.uid, None)
        namespace = local_name(pod.seen.namespace)
        try:
            await self._cluster.remove_gate(namespace, pod.name, GATE, pod.seen.version)
        except (VersionConflict, NotFound):
            queue.refused.discard(pod.seen.uid)
            return True  # the watch is about to report the change
        except ClusterError as error:
            queue.pods.setdefault(pod.seen.uid, pod)
            where = {"namespace": pod.seen.namespace, "key": pod.seen.key}
            _log.warning("gate_not_removed", **where, reason=str(error))
            return False
        queue.refused.discard(pod.seen.uid)
        return True

    def _forget(self, namespace: str, uid: str) -> None:
        self._events.forget((namespace, uid))
        if namespace in self._queues.by_namespace:
            self._queues.forget(namespace, uid)

    def _waits(self, namespace: str, uid: str) -> PodWait | None:
        """Return the wait of a pod for its event, None if it no longer waits."""
        queue = self._queues.by_namespace.get(namespace)
        pod = queue.pods.get(uid) if queue is not None else None
        if queue is None or pod is None:
            return None
        return PodWait(local_name(namespace), pod.name, queue.obstacle(uid))
