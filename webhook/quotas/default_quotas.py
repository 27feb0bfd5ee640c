"""Default quotas: the ResourceQuota of a policy, created in each namespace that lacks it.

A default quota that an operator deletes is created again, because the policy still requires it. A
default quota that an operator changes stays as it is.
"""

from typing import Final

import structlog

from ledger.kube.api.cluster_errors import ClusterError
from ledger.kube.api.cluster_ports import Change, Changed, Listed
from ledger.kube.api.objects import ResourceQuota, Workload
from ledger.kube.quotas import hard_limits
from ledger.tasks.backoff import Backoff
from ledger.tasks.periodic import CooperativeYield
from webhook.context.namespace_policies import DefaultQuota
from webhook.settlement.charge_settlement_session import SettlementSession

CREATE_SECONDS: Final = 2.0
"""Period of the check for missing quotas."""

CREATES_MAX: Final = 20
"""Quotas that are created in one round."""

RETRY_SECONDS: Final = 5.0
RETRY_SECONDS_MAX: Final = 600.0
"""Pauses of a namespace whose quota cannot be created, for example because it is being deleted."""

_log: Final = structlog.get_logger("webhook")


class DefaultQuotas:
    """Creates the default quotas of policies in the namespaces of one cluster."""

    def __init__(self, session: SettlementSession) -> None:
        self._rules = session.settings.rules
        self._cluster = session.cluster
        self._policies = session.context.policies
        self._quotas: set[tuple[str, str]] | None = None
        self._namespaces: dict[str, None] | None = None
        self._backoffs: dict[str, Backoff] = {}

    def take_quota(self, change: Change[ResourceQuota]) -> None:
        """Take note of the existing quotas."""
        if isinstance(change, Listed):
            self._quotas = {
                (quota.metadata.namespace, quota.metadata.name) for quota in change.objects
            }
        elif isinstance(change, Changed) and self._quotas is not None:
            meta = change.object.metadata
            change_set = self._quotas.discard if change.deleted else self._quotas.add
            change_set((meta.namespace, meta.name))

    def take_namespace(self, change: Change[Workload]) -> None:
        """Take note of the existing namespaces."""
        if isinstance(change, Listed):
            self._namespaces = {namespace.metadata.name: None for namespace in change.objects}
        elif isinstance(change, Changed) and self._namespaces is not None:
            name = change.object.metadata.name
            if change.deleted:
                self._namespaces.pop(name, None)
                self._backoffs.pop(name, None)
            else:
                self._namespaces[name] = None

    async def create(self) -> None:
        """Create the missing quotas, once quotas and namespaces are listed."""
        if self._quotas is None or self._namespaces is None or not self._policies.is_in_use():
            return
        stride, created = CooperativeYield(), 0
        for namespace in list(self._namespaces):
            await stride.step()
            wanted = self._policies.of(namespace).default_quota
            if wanted is None or (namespace, wanted.name) in self._quotas:
                continue
            backoff = self._backoffs.get(namespace)
            if backoff is None or backoff.is_over():
                await self._create(namespace, wanted)
                created += 1
            if created == CREATES_MAX:
                return

    async def _create(self, namespace: str, wanted: DefaultQuota) -> None:
        try:
            limits = hard_limits.corrected(wanted.hard, self._rules)
            await self._cluster.create_quota(namespace, wanted.name, limits)
        except ClusterError as error:
            backoff = Backoff(RETRY_SECONDS, RETRY_SECONDS_MAX)
            self._backoffs.setdefault(namespace, backoff).failed()
            _log.warning(
                "default_quota_not_made", namespace=namespace, key=wanted.name, reason=str(error)
            )
            return
        self._backoffs.pop(namespace, None)
        if self._quotas is not None:
            self._quotas.add((namespace, wanted.name))  # before the watch reports it
