"""Further duties: kinds, universe quotas, statuses and gates, where a full cluster is settled."""

import asyncio
from collections.abc import AsyncGenerator

from ledger.kube.api.objects import ResourceQuota, Workload
from ledger.kube.api.ports import Change
from ledger.kube.api.resources import UNIVERSE_QUOTAS, Resource
from ledger.kube.watch.informers import Watches
from ledger.log.ledger import Ledger
from ledger.log.records import Record
from ledger.tasks.periodic import run_periodically
from webhook.context.cluster_and_context import Beyond
from webhook.gates.gate_opener import GateOpener
from webhook.kinds.schema import WorkloadKind
from webhook.quotas import (
    cluster_labels,
    default_quotas,
    resource_quota_status,
    universe_quota_status,
)
from webhook.quotas.cluster_labels import NAMESPACES, ClusterLabels
from webhook.quotas.default_quotas import DefaultQuotas
from webhook.quotas.ignored_universe_quotas import IgnoredUniverseQuotas
from webhook.quotas.quota_warnings import QuotaWarnings
from webhook.quotas.resource_quota_status import ResourceQuotaStatus
from webhook.quotas.universe_quota_status import UniverseQuotaStatus
from webhook.quotas.universe_quotas import UNIVERSE, UniverseQuotaAccounts
from webhook.quotas.usage_by_namespace import UsageByNamespace
from webhook.settlement.attempt_ages import AttemptAges
from webhook.settlement.invalid_objects import InvalidObjects
from webhook.settlement.recheck_queue import RecheckQueue
from webhook.settlement.settlement_session import SettlementSession
from webhook.settlement.workloads.charging_modes import ChargingModes
from webhook.settlement.workloads.workload_informers import WorkloadInformers
from webhook.settlement.workloads.workload_reconciler import WorkloadReconciler


class FurtherDuties:
    """The parts of settlement for everything but pods and quotas."""

    def __init__(
        self,
        tenure: SettlementSession,
        beyond: Beyond,
        ledger: Ledger,
        watches: Watches,
        kinds: WorkloadInformers,
    ) -> None:
        """Prepare; `start` begins the work."""
        policies, cluster = beyond.context.policies, beyond.cluster
        self.kinds = kinds
        self.gates = GateOpener(tenure, ledger, cluster, policies)
        self._breakdown = UsageByNamespace(tenure.view)
        self._settings = tenure.settings
        self._cluster = cluster
        self._watches = watches
        self._descriptions = ClusterLabels(tenure)
        self._defaults = DefaultQuotas(cluster, policies, tenure.settings.rules)
        self._status = ResourceQuotaStatus(tenure, cluster)
        self._universe = UniverseQuotaAccounts(tenure)
        self._universe_status = UniverseQuotaStatus(
            tenure, cluster, self._universe, self._breakdown
        )
        self._ignored = IgnoredUniverseQuotas(tenure, cluster)
        watches.expect(NAMESPACES)
        watches.expect(UNIVERSE)

    @classmethod
    def of(
        cls,
        tenure: SettlementSession,
        ledger: Ledger,
        ages: AttemptAges,
        puzzling: InvalidObjects,
        watches: Watches,
        relooking: RecheckQueue,
    ) -> "FurtherDuties | None":
        """Prepare what a tenure has beyond pods and quotas, None when it has nothing."""
        beyond = tenure.beyond
        if beyond is None:
            return None
        charging_modes = ChargingModes(tenure)

        def make(kind: WorkloadKind, resource: Resource) -> WorkloadReconciler:
            return WorkloadReconciler(
                kind, resource, tenure, ages, puzzling, charging_modes, relooking.ask
            )

        kinds = WorkloadInformers(tenure, beyond, watches, charging_modes, make)
        return cls(tenure, beyond, ledger, watches, kinds)

    def start(self, tasks: asyncio.TaskGroup, tick: float) -> None:
        """Begin all of it, looking every `tick` seconds where nothing else is said."""
        follow, settings = self._watches.follow, self._settings
        tasks.create_task(self.kinds.run())
        tasks.create_task(run_periodically(tick, self.kinds.follow_policies))
        tasks.create_task(run_periodically(tick, self.gates.settle))
        tasks.create_task(run_periodically(tick, self.gates.write_events))
        tasks.create_task(self.gates.run_events())
        tasks.create_task(self._descriptions.tell_cluster())
        tasks.create_task(
            run_periodically(cluster_labels.TELL_SECONDS, self._descriptions.tell_cluster)
        )
        tasks.create_task(follow(NAMESPACES, self._watch_namespaces, self._take_namespace))
        tasks.create_task(run_periodically(default_quotas.MAKE_SECONDS, self._defaults.make))
        if settings.write_quota_status:
            tasks.create_task(
                run_periodically(resource_quota_status.WRITE_SECONDS, self._status.write)
            )
        take, write = self._universe.take, self._universe_status.write
        if not settings.universe_authority:
            take, write = self._ignored.take, self._ignored.write
        tasks.create_task(follow(UNIVERSE, self._watch_universe, take))
        tasks.create_task(run_periodically(universe_quota_status.WRITE_SECONDS, write))

    @property
    def odd_quotas(self) -> QuotaWarnings:
        """What is odd about the universe quotas that exist."""
        return self._universe.warnings

    def follow(self, record: Record) -> None:
        """Take note of what a record changes."""
        self.gates.follow(record)
        self._breakdown.follow(record)

    def note_quota(self, change: Change[ResourceQuota]) -> None:
        """Take note of ResourceQuotas as they are told."""
        self._status.take(change)
        self._defaults.take_quota(change)

    def _watch_namespaces(self) -> AsyncGenerator[Change[Workload], None]:
        return self._cluster.watch_namespaces()

    def _watch_universe(self) -> AsyncGenerator[Change[Workload], None]:
        return self._cluster.watch_objects(UNIVERSE_QUOTAS)

    async def _take_namespace(self, change: Change[Workload]) -> None:
        self._defaults.take_namespace(change)
        await self._descriptions.take(change)
