"""Duties: everything that the active replica watches, writes and looks after in one tenure."""

import asyncio
from typing import Final

from ledger.core.model.events import AnyEvent
from ledger.core.model.traits import is_unread
from ledger.kube.api.objects import Pod, ResourceQuota
from ledger.kube.api.ports import Change, Listed
from ledger.kube.watch.informers import Watches
from ledger.log.ledger import Ledger
from ledger.log.records import Record
from ledger.tasks.periodic import run_periodically
from webhook.context.pod_listener import PodListener
from webhook.gates.gate_opener import GateOpener
from webhook.quotas.quota_tasks import FurtherDuties
from webhook.quotas.quota_warnings import QuotaWarnings
from webhook.quotas.resource_quotas import QUOTAS, ResourceQuotaAccounts
from webhook.settlement.absence_proof import AbsenceProver, ObjectLister
from webhook.settlement.attempt_ages import AttemptAges
from webhook.settlement.drift_counter import drift_of
from webhook.settlement.invalid_objects import InvalidObjects
from webhook.settlement.pod_reconciler import PODS, PodReconciler
from webhook.settlement.recheck_queue import RecheckQueue
from webhook.settlement.recount import start_open_attempt_ages
from webhook.settlement.reread import Rereading
from webhook.settlement.settlement_session import SettlementSession

TICK_SECONDS: Final = 1.0
"""How often grace periods and open attempts are looked at, less when the bound is short."""

PLACEMENTS: Final = "placements"
"""What is settled beside, as readiness calls it."""


class SettlementTasks:
    """The parts of settlement for pods and quotas, and with `beyond` those for everything else."""

    def __init__(
        self, tenure: SettlementSession, ledger: Ledger, beside: PodListener | None = None
    ) -> None:
        """Prepare; `run` does the work. `ledger` answers what has to be known at once.

        `beside` is settled as well, and hears of pods.
        """
        self._beside = beside
        self.ages = AttemptAges()
        self.puzzling = InvalidObjects()
        self.watches = Watches(tenure.settings.recount_seconds, tenure.failures)
        self._tenure = tenure
        self._quotas = ResourceQuotaAccounts(tenure)
        self._pods = PodReconciler(tenure, self.ages, self.puzzling)
        self._relooking = RecheckQueue(tenure, self._pods)
        self._more = FurtherDuties.of(
            tenure, ledger, self.ages, self.puzzling, self.watches, self._relooking
        )
        self._rereading = Rereading(tenure)
        self._barrier = AbsenceProver(tenure, self.ages, self._looking)
        self.watches.expect(PODS, essential=True)
        self.watches.expect(QUOTAS, essential=True)

    @property
    def gates(self) -> GateOpener | None:
        """What lets waiting pods in, None where no full cluster is settled."""
        return self._more.gates if self._more is not None else None

    def odd_quotas(self) -> list[QuotaWarnings]:
        """Return what is odd about the quotas that exist."""
        more = [self._more.odd_quotas] if self._more is not None else []
        return [self._quotas.warnings, *more]

    async def run(self) -> None:
        """Do all of it until cancelled."""
        tick = min(TICK_SECONDS, self._tenure.settings.settle_seconds / 4)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._tenure.courier.run())
            tasks.create_task(start_open_attempt_ages(self._tenure, self.ages))
            tasks.create_task(
                self.watches.follow(QUOTAS, self._tenure.cluster.watch_quotas, self._take_quota)
            )
            tasks.create_task(self._follow_pods())
            for action in (
                self._pods.end_elapsed,
                self._barrier.settle,
                self._relooking.settle,
                self._read_again,
            ):
                tasks.create_task(run_periodically(tick, action))
            if self._more is not None:
                self._more.start(tasks, tick)
            if self._beside is not None:
                tasks.create_task(self._beside.run())

    def follow(self, record: Record, now: float) -> None:
        """Take note of what a record changes for this cluster, at `now` seconds of the loop."""
        tenure = self._tenure
        for item in record.items:
            event = item.event
            if tenure.owns(getattr(event, "namespace", "")) and tenure.settles(
                getattr(event, "key", "")
            ):
                self.ages.follow(event, now)
                self._count(event)
        if self._more is not None:
            self._more.follow(record)

    async def _follow_pods(self) -> None:
        if self._more is not None:
            await self._more.kinds.listed()
        await self.watches.follow(PODS, self._tenure.cluster.watch_pods, self._take_pod)

    async def _take_pod(self, change: Change[Pod]) -> None:
        await self._charge_pod(change)
        if self._beside is not None:
            with self._tenure.failures.taking(PLACEMENTS, "of pods"):
                await self._beside.take(change)

    async def _charge_pod(self, change: Change[Pod]) -> None:
        if self._more is None:
            await self._pods.take(change)
            return
        if isinstance(change, Listed):
            self._more.gates.begin_anew()
        await self._pods.take(change, self._more.gates.note)

    async def _take_quota(self, change: Change[ResourceQuota]) -> None:
        if self._more is not None:
            self._more.note_quota(change)
        await self._quotas.take(change)

    async def _read_again(self) -> None:
        """List everything anew if accounts select by labels that were not looked at."""
        if self._rereading.is_due():
            if self._more is not None:
                self._more.kinds.begin_anew()
            self.watches.begin_anew(PODS)

    def _looking(self, kind: str) -> ObjectLister | None:
        if kind == PODS:
            return self._pods
        return self._more.kinds.of(kind) if self._more is not None else None

    def _count(self, event: AnyEvent) -> None:
        cause = drift_of(event, self._tenure.beyond)
        if cause:
            self._tenure.count("drift_total", cause)
        if is_unread(getattr(event, "traits", ())):
            self._tenure.count("labels_unread_total")
