"""Cluster tasks of the service: one cluster is registered, watched and settled.

Admission and the extender get their ledger here. It denies their commands until the ledger has the
name of the cluster.
"""

import asyncio
import functools
import time
from collections.abc import Callable
from typing import Final

import structlog

from gpuledger.server.ledger_replica import LedgerReplica
from gpuledger.server.read_your_writes_ledger import ReadYourWritesLedger
from gpuledger.server.registered_cluster_ledger import RegisteredClusterLedger
from gpuledger.server.role.role_label import RoleLabel
from gpuledger.server.webhook_registration import WebhookRegistration
from gpuledger.wiring import (
    admission_from_settings,
    api_client_from_settings,
    settlement_from_settings,
)
from ledger.kube.api.cluster_errors import ClusterError
from ledger.kube.client.access_review import KubernetesReviewer
from ledger.kube.client.api_client import ApiClient
from ledger.kube.client.own_identity import own_name
from ledger.kube.cluster import hami_accounts
from ledger.kube.cluster.kubernetes_cluster import KubernetesCluster
from ledger.runtime.counter_protocol import Count
from ledger.runtime.settings.settings import Settings
from webhook.active_replica import Settlement
from webhook.context.refused_hami_accounts import RefusedHamiAccounts
from webhook.settlement.charge_settlement_session import Site

IDENTIFY_AGAIN_SECONDS: Final = 5.0

_log: Final = structlog.get_logger("gpuledger")


class ClusterTasks:
    """One cluster, watched and settled while this replica is the active one.

    `ledger` is for admission and the extender: it decides once the cluster is registered.
    """

    def __init__(
        self, settings: Settings, client: ApiClient, *, replica: LedgerReplica, count: Count
    ) -> None:
        """Use a client; `close` closes it."""
        self.reviewer = KubernetesReviewer(client)
        self._settings, self._client, self._replica = settings, client, replica
        self.cluster = cluster = KubernetesCluster(client)
        may_allocate = functools.partial(hami_accounts.may_allocate, self.reviewer)
        self.context = admission_from_settings.cluster_context(settings, replica, cluster)
        self.context.refused_hami_accounts = RefusedHamiAccounts(may_allocate)
        self.cards = settlement_from_settings.card_settlement(settings, replica, cluster, count)
        self.context.resource_claims.slices.set_offered = self.cards.offered.set
        self.ledger = RegisteredClusterLedger(
            replica, settings.cluster, is_registered=self._is_registered
        )
        self.settlement = Settlement(
            ReadYourWritesLedger(replica, replica),
            replica,
            site=Site(cluster, self.context),
            now=lambda: time.time_ns() // 1_000,
            is_active=replica.is_active,
            settings=settlement_from_settings.settlement_settings(settings),
            count=count,
            listeners=[self.cards.begin],
        )
        self._webhooks = WebhookRegistration(
            settings, client=client, context=self.context, is_active=replica.is_active
        )
        self._identified = asyncio.Event()

    @classmethod
    async def connect(
        cls, settings: Settings, replica: LedgerReplica, count: Count
    ) -> "ClusterTasks":
        """Read the credentials; nothing is sent yet. Raises ClusterError."""
        client = await api_client_from_settings.connect(settings)
        return cls(settings, client, replica=replica, count=count)

    @property
    def client(self) -> ApiClient:
        """The connections to the API server."""
        return self._client

    def is_active(self) -> bool:
        """Return whether this replica settles the cluster."""
        return self._replica.is_active()

    def problems(self) -> list[str]:
        """Return the problems between this replica and the cluster."""
        problems = self.settlement.problems()
        if self._webhooks.problem is not None:
            problems.append(f"webhook: {self._webhooks.problem}")
        return problems

    def is_trusted(self, authority: bytes) -> bool:
        """Return whether the API server may meet a certificate of this CA, given as PEM."""
        return self._webhooks.is_trusted(authority)

    def warnings(self) -> list[str]:
        """Return the problems that keep no review from its answer."""
        compared = self._webhooks.warning
        return [f"webhook: {compared}"] if compared else []

    async def run(
        self,
        authority: Callable[[], bytes],
        is_ready: Callable[[], bool],
        *,
        reviews: bool = True,
    ) -> None:
        """Watch and settle the cluster and keep the registration until cancelled. Raises
        ClusterNameTaken.

        `authority` returns the CA of the service now, and `is_ready` whether this replica is ready.
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
                tasks.create_task(self._register_webhooks(authority))
                if self._settings.pod_name:
                    tasks.create_task(self._role_label(is_ready).run())

    def _is_registered(self) -> bool:
        return self.settlement.registered.is_set()

    async def _register_webhooks(self, authority: Callable[[], bytes]) -> None:
        """Wait for the name of the cluster, because the service answers no review before."""
        await self.settlement.registered.wait()
        await self._webhooks.run(authority, self._identified)

    def _role_label(self, is_ready: Callable[[], bool]) -> RoleLabel:
        replica, settings = self._replica, self._settings
        return RoleLabel(
            self._client,
            replica.beats,
            namespace=settings.namespace,
            pod=settings.pod_name,
            is_owner=replica.is_owner,
            is_ready=is_ready,
        )

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
