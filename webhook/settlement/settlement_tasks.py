"""The tasks of settlement: pods, workloads, absence proofs, and rechecks of pods."""

import asyncio
from collections.abc import Sequence

from ledger.kube.api.api_resources import Resource
from ledger.kube.watch.informers import Informers
from ledger.log.records import Record
from ledger.tasks.periodic import run_periodically
from webhook.kinds.kind_schema import WorkloadKind
from webhook.settlement.absence_proof import AbsenceProver, ObjectLister
from webhook.settlement.attempt_ages import AttemptAges
from webhook.settlement.drift_counter import DriftCounter
from webhook.settlement.full_list_recount import start_open_attempt_ages
from webhook.settlement.invalid_objects import InvalidObjects
from webhook.settlement.pod_reconciler import PODS, PodGates, PodListener, PodReconciler
from webhook.settlement.recheck_queue import RecheckQueue
from webhook.settlement.settlement_session import SettlementSession
from webhook.settlement.workloads.charging_modes import ChargingModes
from webhook.settlement.workloads.workload_informers import WorkloadInformers
from webhook.settlement.workloads.workload_reconciler import WorkloadReconciler


class SettlementTasks:
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
        self._pods = PodReconciler(
            session,
            gates,
            ages=self.ages,
            invalid_objects=self.invalid_objects,
            listeners=listeners,
        )
        self._recheck_queue = RecheckQueue(session, self._pods)
        self._absence = AbsenceProver(session, self.ages, lister_of=self._lister_of)
        self._labels_read = session.context.rules.labels.read
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
            self._relist_on_new_labels,
        ):
            tasks.create_task(run_periodically(tick, action))
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

    async def _start_pods(self, tasks: asyncio.TaskGroup) -> None:
        """Follow the pods once the kinds of their owners are listed."""
        await self._workloads.listed()
        tasks.create_task(
            self._informers.follow(PODS, self._session.cluster.watch_pods, self._pods.take)
        )

    async def _relist_on_new_labels(self) -> None:
        """List everything again once accounts select by labels that no list has read.

        Until an object is read again, such accounts count it with any labels.
        """
        read = self._session.context.rules.labels.read
        if read > self._labels_read:
            self._workloads.relist()
            self._informers.relist(PODS)
        self._labels_read = read

    def _lister_of(self, kind: str) -> ObjectLister | None:
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
