"""Cluster side of the service: settlement, registration, and token reviews."""

import asyncio
import contextlib
import functools
import time
from typing import Final

import structlog

from gpuledger.server import ledger_decorators
from gpuledger.server.replica import LedgerReplica
from gpuledger.wiring import card_settlement_from_settings, service_parts
from ledger.kube.api.errors import ClusterError
from ledger.kube.client.access_review import KubernetesReviewer
from ledger.kube.client.api_client import ApiClient
from ledger.kube.client.own_identity import own_name
from ledger.kube.cluster import hami_accounts
from ledger.kube.cluster.kubernetes_cluster import KubernetesCluster
from ledger.runtime.counter_protocol import Count
from ledger.runtime.settings.settings import Settings
from webhook.configurations import webhook_configurations
from webhook.configurations.label_conditions import SelectedLabels
from webhook.configurations.mutating_conditions import MutatingCondition
from webhook.context.refused_hami_accounts import RefusedHamiAccounts
from webhook.settlement.settlement_session import Site
from webhook.settlement_controller import Settlement

REGISTER_AGAIN_SECONDS: Final = 2.0
IDENTIFY_AGAIN_SECONDS: Final = 5.0
IDENTIFIED_SECONDS: Final = 10.0
"""How long registration waits for the service's own user name."""

_log: Final = structlog.get_logger("gpuledger")


class ClusterSide:
    """One cluster, watched and settled while this replica is the active one.

    `ledger` is for admission and the extender: it decides once the cluster is registered.
    """

    def __init__(
        self, settings: Settings, client: ApiClient, *, replica: LedgerReplica, count: Count
    ) -> None:
        """Use a client; `close` closes it."""
        self.reviewer = KubernetesReviewer(client)
        self.registration: str | None = "not registered yet" if settings.register_webhook else None
        self._settings, self._client, self._replica = settings, client, replica
        self.cluster = cluster = KubernetesCluster(client)
        may_allocate = functools.partial(hami_accounts.may_allocate, self.reviewer)
        self.context = service_parts.cluster_context(settings, replica, cluster)
        self.context.refused_hami_accounts = RefusedHamiAccounts(may_allocate)
        self.cards = card_settlement_from_settings.card_settlement(
            settings, replica, cluster, count
        )
        ledgers = ledger_decorators.decorated(
            replica, settings.cluster, is_registered=self._is_registered
        )
        self.ledger = ledgers.admission
        self.settlement = Settlement(
            ledgers.settlement,
            replica,
            site=Site(cluster, self.context),
            now=lambda: time.time_ns() // 1_000,
            is_active=replica.is_active,
            settings=service_parts.settlement_settings(settings),
            count=count,
            listeners=[self.cards.begin],
        )
        self._identified = asyncio.Event()

    @classmethod
    async def connect(
        cls, settings: Settings, replica: LedgerReplica, count: Count
    ) -> "ClusterSide":
        """Read the credentials; nothing is sent yet. Raises ClusterError."""
        client = await ApiClient.connect(service_parts.kubeconfig(settings))
        return cls(settings, client, replica=replica, count=count)

    def problems(self) -> list[str]:
        """Return the problems between this replica and the cluster."""
        found = self.settlement.problems()
        if self.registration is not None:
            found.append(f"webhook: {self.registration}")
        return found

    async def run(self, authority: bytes, *, reviews: bool = True) -> None:
        """Watch and settle the cluster and keep the registration until cancelled. Raises
        ClusterNameTaken.

        Without `reviews` this replica answers no reviews and does not change registrations.
        """
        async with asyncio.TaskGroup() as tasks:
            if self.context.informers is not None:
                tasks.create_task(self.context.informers.run())
            tasks.create_task(self.cards.run())
            tasks.create_task(self._identify())
            await self._replica.opened.wait()
            tasks.create_task(self.settlement.run())
            if reviews:
                tasks.create_task(self._register(authority))

    def _is_registered(self) -> bool:
        return self.settlement.registered.is_set()

    async def close(self) -> None:
        """Close the connections to the API server."""
        await self._client.close()

    async def _identify(self) -> None:
        """Read the service's user name until that succeeds: that user may annotate bound pods."""
        while True:
            try:
                self.context.identity = await own_name(self._client)
            except ClusterError as error:
                _log.warning("own_name_not_known", reason=str(error))
                await asyncio.sleep(IDENTIFY_AGAIN_SECONDS)
            else:
                self._identified.set()
                return

    async def _register(self, authority: bytes) -> None:
        """Write both webhook configurations if the settings require it; keep their conditions
        narrow.

        This waits for the cluster's registration, because the service cannot answer reviews before.
        """
        await self.settlement.registered.wait()
        if self._settings.register_webhook:
            await self._write_registration(authority)
        rules, schedulers = self.context.rules, service_parts.card_schedulers(self._settings)
        narrowing = MutatingCondition(
            self._client, self.context.policies, rules=rules, schedulers=schedulers
        )
        selected = SelectedLabels(self._client, lambda: self.context.rules.labels)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(narrowing.run())
            tasks.create_task(selected.run())

    async def _write_registration(self, authority: bytes) -> None:
        """Write both webhook configurations; retry until it succeeds."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._identified.wait(), IDENTIFIED_SECONDS)
        address = webhook_configurations.WebhookAddress(self._settings.register_webhook, authority)
        found = webhook_configurations.configurations(
            address,
            service_parts.review_scope(self._settings, self.context.identity),
        )
        while self.registration is not None:
            try:
                await webhook_configurations.register(self._client, found)
            except ClusterError as error:
                self.registration = str(error)
                _log.warning("webhook_not_registered", reason=str(error))
                await asyncio.sleep(REGISTER_AGAIN_SECONDS)
            else:
                self.registration = None
                _log.info("webhook_registered", url=self._settings.register_webhook)
