"""Quota account tasks: starts the watches of quotas and namespaces, and the writes of statuses."""

import asyncio
from collections.abc import AsyncGenerator

from ledger.kube.api.api_resources import UNIVERSE_QUOTAS
from ledger.kube.api.cluster_ports import Change
from ledger.kube.api.objects import ResourceQuota, Workload
from ledger.kube.watch.informers import Informers
from ledger.tasks.periodic import run_periodically
from webhook.quotas import (
    default_quotas,
    namespace_label_sync,
    policy_status,
    resource_quota_status,
    universe_quota_status,
)
from webhook.quotas.default_quotas import DefaultQuotas
from webhook.quotas.namespace_label_sync import NAMESPACES, NamespaceLabelSync
from webhook.quotas.policy_status import PolicyStatusWriter
from webhook.quotas.quota_warnings import QuotaWarnings
from webhook.quotas.resource_quota_accounts import QUOTAS, ResourceQuotaAccounts
from webhook.quotas.resource_quota_status import ResourceQuotaStatusWriter
from webhook.quotas.universe_authority import handlers_of_universe_quotas
from webhook.quotas.universe_quota_accounts import UNIVERSE, UniverseQuotaAccounts
from webhook.quotas.universe_quota_status import UniverseQuotaStatusWriter
from webhook.quotas.usage_by_namespace import UsageByNamespace
from webhook.settlement.charge_settlement_session import SettlementSession


class QuotaTasks:
    """Quota accounts and the status of quotas in one session.

    `usage` follows the records of the ledger.
    """

    def __init__(self, session: SettlementSession, informers: Informers) -> None:
        """Prepare; `start` begins the tasks."""
        self._session = session
        self._informers = informers
        self.usage = UsageByNamespace(session.view)
        self._label_sync = NamespaceLabelSync(session)
        self._defaults = DefaultQuotas(session)
        self._resource_quotas = ResourceQuotaAccounts(session)
        self._resource_status = ResourceQuotaStatusWriter(session)
        self._universe_quotas = UniverseQuotaAccounts(session)
        self._universe_status = UniverseQuotaStatusWriter(
            session, universe_quotas=self._universe_quotas, usage=self.usage
        )
        self._policy_status = PolicyStatusWriter(session)
        informers.expect(NAMESPACES)
        informers.expect(UNIVERSE)
        informers.expect(QUOTAS, essential=True)

    def start(self, tasks: asyncio.TaskGroup) -> None:
        """Begin the tasks of quota accounts."""
        session, follow = self._session, self._informers.follow
        tasks.create_task(follow(QUOTAS, session.cluster.watch_quotas, self._take_quota))
        tasks.create_task(self._label_sync.send_cluster())
        tasks.create_task(
            run_periodically(namespace_label_sync.SEND_SECONDS, self._label_sync.send_cluster)
        )
        tasks.create_task(
            follow(NAMESPACES, session.cluster.watch_namespaces, self._take_namespace)
        )
        tasks.create_task(run_periodically(default_quotas.CREATE_SECONDS, self._defaults.create))
        tasks.create_task(run_periodically(policy_status.WRITE_SECONDS, self._policy_status.write))
        if session.settings.write_quota_status:
            tasks.create_task(
                run_periodically(resource_quota_status.WRITE_SECONDS, self._resource_status.write)
            )
        handlers = handlers_of_universe_quotas(
            session, self._universe_quotas, self._universe_status
        )
        tasks.create_task(follow(UNIVERSE, self._watch_universe, handlers.take))
        tasks.create_task(run_periodically(universe_quota_status.WRITE_SECONDS, handlers.write))

    def warnings(self) -> list[QuotaWarnings]:
        """Return the warnings about ResourceQuotas and about universe quotas."""
        return [self._resource_quotas.warnings, self._universe_quotas.warnings]

    def _watch_universe(self) -> AsyncGenerator[Change[Workload], None]:
        return self._session.cluster.watch_objects(UNIVERSE_QUOTAS)

    async def _take_quota(self, change: Change[ResourceQuota]) -> None:
        self._resource_status.take(change)
        self._defaults.take_quota(change)
        await self._resource_quotas.take(change)

    async def _take_namespace(self, change: Change[Workload]) -> None:
        self._defaults.take_namespace(change)
        await self._label_sync.take(change)
