"""Default quotas: namespaces whose policy wants a ResourceQuota get it.

What is deleted by hand comes again, because the policy says that the namespace has one; whoever
does not want it changes the policy. What is changed by hand stays as it is.
"""

import logging
from typing import Final

from ledger.kube.api.errors import ClusterError
from ledger.kube.api.objects import ResourceQuota, Workload
from ledger.kube.api.ports import Change, Changed, Listed, Writes
from ledger.kube.quotas import hard_limits
from ledger.kube.requests.demand_rules import DemandRules
from ledger.tasks.backoff import Backoff
from ledger.tasks.periodic import CooperativeYield
from webhook.context.policies import DefaultQuota, Policies

MAKE_SECONDS: Final = 2.0
"""How often it is looked where a quota is missing."""

WRITES_MAX: Final = 20
"""Quotas that are made in one round."""

RETRY_SECONDS: Final = 5.0
RETRY_SECONDS_MAX: Final = 600.0
"""Pauses of a namespace whose quota cannot be made, as when it is being deleted."""

_log: Final = logging.getLogger(__name__)


class DefaultQuotas:
    """Makes the quotas that policies want in the namespaces of one cluster."""

    def __init__(self, writes: Writes, policies: Policies, rules: DemandRules) -> None:
        """`rules` say which keys count no bytes; such amounts are written as plain numbers."""
        self._rules = rules
        self._writes = writes
        self._policies = policies
        self._quotas: set[tuple[str, str]] | None = None
        self._namespaces: dict[str, None] | None = None
        self._backoffs: dict[str, Backoff] = {}

    def take_quota(self, change: Change[ResourceQuota]) -> None:
        """Take note of which quotas exist."""
        if isinstance(change, Listed):
            self._quotas = {(one.metadata.namespace, one.metadata.name) for one in change.objects}
        elif isinstance(change, Changed) and self._quotas is not None:
            meta = change.object.metadata
            change_set = self._quotas.discard if change.deleted else self._quotas.add
            change_set((meta.namespace, meta.name))

    def take_namespace(self, change: Change[Workload]) -> None:
        """Take note of which namespaces exist."""
        if isinstance(change, Listed):
            self._namespaces = {one.metadata.name: None for one in change.objects}
        elif isinstance(change, Changed) and self._namespaces is not None:
            name = change.object.metadata.name
            if change.deleted:
                self._namespaces.pop(name, None)
                self._backoffs.pop(name, None)
            else:
                self._namespaces[name] = None

    async def make(self) -> None:
        """Make the quotas that are missing, once everything was listed."""
        if self._quotas is None or self._namespaces is None or not self._policies.is_in_use():
            return
        stride, written = CooperativeYield(), 0
        for namespace in list(self._namespaces):
            await stride.step()
            wanted = self._policies.of(namespace).default_quota
            if wanted is None or (namespace, wanted.name) in self._quotas:
                continue
            backoff = self._backoffs.get(namespace)
            if backoff is None or backoff.is_over():
                await self._make(namespace, wanted)
                written += 1
            if written == WRITES_MAX:
                return

    async def _make(self, namespace: str, wanted: DefaultQuota) -> None:
        try:
            limits = hard_limits.corrected(wanted.hard, self._rules)
            await self._writes.create_quota(namespace, wanted.name, limits)
        except ClusterError as error:
            backoff = Backoff(RETRY_SECONDS, RETRY_SECONDS_MAX)
            self._backoffs.setdefault(namespace, backoff).failed()
            extra = {"namespace": namespace, "key": wanted.name, "reason": str(error)}
            _log.warning("default_quota_not_made", extra=extra)
            return
        self._backoffs.pop(namespace, None)
        if self._quotas is not None:  # until the watch tells it
            self._quotas.add((namespace, wanted.name))
