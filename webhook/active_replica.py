"""Active replica: runs settlement, quota accounts and scheduling gates of one cluster.

Pods are listed after the workloads that own them and the resource claims that belong to them.
Before anything is settled, the cluster's name is registered in the ledger; a name that another
cluster has stops the service. Every difference between the ledger and the cluster becomes a
command. The ledger decides each command, so a command that is sent twice, or by two replicas, does
no harm.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import Final

import structlog

from ledger.core.model.commands import RegisterCluster
from ledger.core.model.denials import Denial, Reason, sentence
from ledger.kube.api.api_resources import Resource
from ledger.kube.api.cluster_errors import ClusterError
from ledger.kube.watch.informers import Informers
from ledger.log.command_delivery import CommandQueue
from ledger.log.ledger_port import Ledger, StateView
from ledger.log.records import Record
from ledger.runtime.counter_protocol import Count
from ledger.tasks.periodic import run_periodically
from webhook.gates.gate_opener import GateOpener
from webhook.gates.waiting_report import WaitingPage, WaitingQuestion
from webhook.kinds.kind_schema import WorkloadKind
from webhook.quotas.quota_account_tasks import QuotaTasks
from webhook.settlement.absence_proof import AbsenceProver, ObjectLister
from webhook.settlement.charge_settlement_session import (
    WATCHED,
    SettlementSession,
    SettlementSettings,
    Site,
)
from webhook.settlement.drift_counter import DriftCounter
from webhook.settlement.invalid_objects import InvalidObjects
from webhook.settlement.new_label_relist import NewLabelRelist
from webhook.settlement.open_attempt_ages import AttemptAges, start_open_attempt_ages
from webhook.settlement.pod_recheck_queue import RecheckQueue
from webhook.settlement.pod_reconciler import PODS, PodGates, PodListener, PodReconciler
from webhook.settlement.resource_claims.claim_tasks import ResourceClaimTasks
from webhook.settlement.resource_claims.resource_claim_reconciler import RESOURCE_CLAIMS
from webhook.settlement.workloads.charging_modes import ChargingModes
from webhook.settlement.workloads.workload_informers import WorkloadInformers
from webhook.settlement.workloads.workload_reconciler import WorkloadReconciler

POLL_SECONDS: Final = 0.2
"""Period of the check whether this replica is the active one."""

REGISTER_SECONDS: Final = 2.0
"""Pause after a registration of the cluster failed."""

StartListener = Callable[[CommandQueue], PodListener]
"""Begins a listener of pods for one session, which sends its commands through the queue."""

_log: Final = structlog.get_logger("webhook")


class ClusterNameTaken(Exception):
    """Another cluster has this name in the ledger; the message has the remedy."""


class _Passive(Exception):
    """This replica is no longer the active one."""


class _SettlementTasks:
    """Settlement of pods and workloads in one session."""

    def __init__(
        self,
        session: SettlementSession,
        informers: Informers,
        *,
        gates: PodGates,
        listeners: Sequence[PodListener],
    ) -> None:
        """Prepare; `start` begins the tasks."""
        self.ages = AttemptAges()
        self.invalid_objects = InvalidObjects()
        self._session = session
        self._informers = informers
        self._drift = DriftCounter(session.context.policies, session.count)
        self._workloads = WorkloadInformers(session, informers, make=self._reconciler)
        self.claims = ResourceClaimTasks(
            session, informers, ages=self.ages, invalid_objects=self.invalid_objects, pods=PODS
        )
        self._pods = PodReconciler(
            session,
            gates,
            ages=self.ages,
            invalid_objects=self.invalid_objects,
            listeners=listeners,
            claims=self.claims.reconciler.pods,
        )
        self._recheck_queue = RecheckQueue(session, self._pods)
        self._absence = AbsenceProver(session, self.ages, lister_of=self._lister_of)
        self._label_relist = NewLabelRelist(session, informers, workloads=self._workloads)
        informers.expect(PODS, essential=True)

    def start(self, tasks: asyncio.TaskGroup) -> None:
        """Begin the tasks of settlement."""
        tick = self._session.tick_seconds
        tasks.create_task(start_open_attempt_ages(self._session, self.ages))
        tasks.create_task(self._start_pods(tasks))
        for action in (
            self._pods.end_elapsed,
            self._absence.settle,
            self._recheck_queue.settle,
            self._label_relist.relist_if_due,
        ):
            tasks.create_task(run_periodically(tick, action))
        self.claims.start(tasks)
        tasks.create_task(self._pods.follow_claims())
        tasks.create_task(self._workloads.run())
        tasks.create_task(run_periodically(tick, self._workloads.follow_policies))

    def follow(self, record: Record, now: float) -> None:
        """Take note of the changes of a record in this cluster, at `now` seconds of the loop."""
        prefix, kinds = self._session.namespace_prefix, self._session.settled_kinds
        for item in record.items:
            event = item.event
            if (
                getattr(event, "namespace", "").startswith(prefix)
                and getattr(event, "key", "").partition("/")[0] in kinds
            ):
                self.ages.follow(event, now)
                self._drift.follow(event)
                self.claims.reconciler.follow(event)

    async def _start_pods(self, tasks: asyncio.TaskGroup) -> None:
        """Follow the pods once the kinds of their owners and their claims are listed."""
        await self._workloads.listed()
        await self.claims.listed()
        tasks.create_task(
            self._informers.follow(PODS, self._session.cluster.watch_pods, self._pods.take)
        )

    def _lister_of(self, kind: str) -> ObjectLister | None:
        if kind == RESOURCE_CLAIMS:
            return self.claims.reconciler
        return self._pods if kind == PODS else self._workloads.of(kind)

    def _reconciler(
        self, kind: WorkloadKind, resource: Resource, charging_modes: ChargingModes
    ) -> WorkloadReconciler:
        return WorkloadReconciler(
            kind,
            resource,
            session=self._session,
            ages=self.ages,
            invalid_objects=self.invalid_objects,
            charging_modes=charging_modes,
            recheck=self._recheck_queue.add,
        )


class _ActiveTasks:
    """Everything that runs in one session."""

    def __init__(
        self, session: SettlementSession, ledger: Ledger, *, listeners: Sequence[PodListener]
    ) -> None:
        self.informers = Informers(session.settings.recount_seconds, session.failures)
        self.gates = GateOpener(session, ledger)
        self.settlement = _SettlementTasks(
            session, self.informers, gates=self.gates, listeners=listeners
        )
        self.quotas = QuotaTasks(session, self.informers)
        self._session = session
        self._listeners = listeners

    async def run(self) -> None:
        """Run all tasks until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._session.commands.run())
            self.quotas.start(tasks)
            self.settlement.start(tasks)
            self.gates.start(tasks)
            for listener in self._listeners:
                tasks.create_task(listener.run())


class Settlement:
    """Settles one cluster. Its `problems` make the replica unready.

    `registered` is set once the ledger has the cluster's name.
    """

    def __init__(
        self,
        ledger: Ledger,
        view: StateView,
        *,
        site: Site,
        now: Callable[[], int],
        is_active: Callable[[], bool],
        settings: SettlementSettings,
        count: Count,
        listeners: Sequence[StartListener],
    ) -> None:
        """`now` returns µs of Unix time; `listeners` are begun in each session."""
        self._ledger = ledger
        self._view = view
        self._site = site
        self._now = now
        self._is_active = is_active
        self._settings = settings
        self._count = count
        self._listeners = listeners
        self._active: _ActiveTasks | None = None
        self._unregistered = "the cluster is not registered in the ledger yet"
        self.registered = asyncio.Event()
        view.subscribe(self._follow)

    @property
    def open_attempts(self) -> int:
        """The number of open attempts, 0 on a passive replica."""
        return len(self._active.settlement.ages) if self._active is not None else 0

    @property
    def listed(self) -> bool:
        """Whether this replica is active and has compared everything that exists."""
        return self._active is not None and not self._active.informers.waiting

    @property
    def invalid_objects(self) -> int:
        """The number of existing objects whose request is invalid."""
        return len(self._active.settlement.invalid_objects) if self._active is not None else 0

    @property
    def quotas_with_warnings(self) -> int:
        """The number of existing quotas with warnings."""
        return sum(map(len, self._active.quotas.warnings())) if self._active is not None else 0

    @property
    def unused_claims(self) -> int:
        """The number of charged resource claims without any use for a day."""
        if self._active is None:
            return 0
        return len(self._active.settlement.claims.reconciler.unused.due(self._now()))

    @property
    def unnamed_claims(self) -> int:
        """The number of resource claims of pods that do not name them yet."""
        return self._active.settlement.claims.reconciler.unnamed if self._active is not None else 0

    @property
    def waiting(self) -> int:
        """The number of pods that wait behind the scheduling gate."""
        return self._active.gates.waiting if self._active is not None else 0

    @property
    def waiting_seconds_max(self) -> float:
        """The age of the oldest waiting pod in seconds."""
        return self._active.gates.waiting_seconds_max() if self._active is not None else 0.0

    def waiting_page(self, question: WaitingQuestion) -> WaitingPage | None:
        """Return pods that wait; None while this replica is passive, or has not listed the pods."""
        active = self._active
        if active is None or PODS in active.informers.waiting:
            return None
        return active.gates.waiting_page(question)

    def problems(self) -> list[str]:
        """Return why the ledger may not have all objects; empty on a passive replica."""
        reasons = self._active.informers.problems() if self._active is not None else []
        return [f"registration: {self._unregistered}", *reasons] if self._unregistered else reasons

    def warnings(self) -> list[str]:
        """Return unread watches and invalid quotas; empty on a passive replica."""
        if self._active is None:
            return []
        quotas = [line for warnings in self._active.quotas.warnings() for line in warnings.shown()]
        claims = self._active.settlement.claims.warnings()
        return [*self._active.informers.warnings(), *claims, *quotas]

    async def register(self) -> None:
        """Bind the cluster's name to its identity.

        Raises ClusterNameTaken if the name belongs to another cluster, and ClusterError if the API
        server or the ledger does not answer.
        """
        uid, name = await self._site.cluster.kube_system_uid(), self._site.context.name
        if self._view.state.clusters.get(name) == uid:
            return  # a registration is final, so a restart does not depend on another writer
        answer = await self._ledger.submit(RegisterCluster(name, uid, WATCHED))
        if not isinstance(answer, Denial):
            return
        if answer.reason is Reason.CLUSTER_NAME_TAKEN:
            raise ClusterNameTaken(sentence(answer))
        raise ClusterError(sentence(answer))

    async def run(self) -> None:
        """Settle while this replica is the active one, until cancelled.

        Raises ClusterNameTaken.
        """
        await self._register()
        while True:
            await self._wait_until(active=True)
            _log.info("settlement_begins", cluster=self._site.context.name)
            await self._run_session()
            _log.info("settlement_ends", cluster=self._site.context.name)

    async def _register(self) -> None:
        while True:
            try:
                await self.register()
                self._unregistered = ""
                self.registered.set()
                return
            except ClusterError as error:
                self._unregistered = str(error)
                _log.warning("cluster_not_registered", reason=str(error))
            await asyncio.sleep(REGISTER_SECONDS)

    async def _run_session(self) -> None:
        commands = CommandQueue(self._ledger)
        session = SettlementSession(
            self._view,
            self._site,
            settings=self._settings,
            now=self._now,
            commands=commands,
            count=self._count,
        )
        listeners = [start(commands) for start in self._listeners]
        active = self._active = _ActiveTasks(session, self._ledger, listeners=listeners)
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(active.run())
                tasks.create_task(self._step_down())
        except* _Passive:
            pass
        finally:
            self._active = None
            self._site.context.resource_claims.relist_claims(())  # nothing updates them any more

    async def _step_down(self) -> None:
        await self._wait_until(active=False)
        raise _Passive

    async def _wait_until(self, *, active: bool) -> None:
        """Wait until this replica is, or is no longer, the active one."""
        while self._is_active() is not active:  # noqa: ASYNC110 - a lease lapses without an event
            await asyncio.sleep(POLL_SECONDS)

    def _follow(self, record: Record) -> None:
        """Take note of the changes of a record, while this replica is the active one."""
        if self._active is not None:
            self._active.settlement.follow(record, asyncio.get_running_loop().time())
            self._active.gates.follow(record)
            self._active.quotas.usage.follow(record)
