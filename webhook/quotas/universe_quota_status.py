"""The status of UniverseResourceQuotas: limits, usage in all, by cluster and by namespace.

Written by the cluster whose universe quotas are the ledger's, on change only and every few seconds
at most. It is a copy for people.
"""

import logging
from collections import defaultdict
from typing import Final

from ledger.core.model import accounts
from ledger.core.model.state import Account
from ledger.kube.api.errors import ClusterError, NotFound
from ledger.kube.api.objects import Workload
from ledger.kube.api.ports import Writes
from ledger.kube.quotas import hard_limits
from ledger.tasks.backoff import Backoff
from webhook.quotas.status_conditions import Condition, QuotaStatusConditions
from webhook.quotas.universe_quotas import UniverseQuotaAccounts
from webhook.quotas.usage_by_namespace import NamespaceUsage, UsageByNamespace
from webhook.settlement.settlement_session import SettlementSession

WRITE_SECONDS: Final = 5.0
"""How often it is looked what has changed."""

NAMESPACES_MAX: Final = 1_000
"""Namespaces that are named in a status, those that use most; all are in their cluster's sum."""

RETRY_SECONDS: Final = 5.0
RETRY_SECONDS_MAX: Final = 120.0

RESOURCE: Final = "universeresourcequotas"
"""What these statuses are counted under."""

IN_EFFECT: Final = "InEffect"
"""The type of the condition that says whether a quota limits anything."""

_UNDERSTOOD: Final = "Understood"
_MESSAGE_MAX: Final = 4_096

_log: Final = logging.getLogger(__name__)


class UniverseQuotaStatus:
    """Keeps the status of this cluster's UniverseResourceQuotas at what the ledger counts."""

    def __init__(
        self,
        tenure: SettlementSession,
        writes: Writes,
        universe: UniverseQuotaAccounts,
        breakdown: UsageByNamespace,
    ) -> None:
        self._tenure = tenure
        self._writes = writes
        self._universe = universe
        self._breakdown = breakdown
        self._written: dict[str, QuotaStatusConditions] = {}
        self._backoff = Backoff(RETRY_SECONDS, RETRY_SECONDS_MAX)

    async def write(self) -> None:
        """Write what has changed, unless writing has just failed."""
        existing = self._universe.existing
        self._written = {name: one for name, one in self._written.items() if name in existing}
        if not self._backoff.is_over():
            return
        for name, quota in list(existing.items()):
            status = await self._status(name, quota)
            if status is None or status == self._written.get(name):
                continue
            if not await self._write(name, status):
                self._backoff.failed()
                return
        self._backoff.reset()

    async def _write(self, name: str, status: QuotaStatusConditions) -> bool:
        """Write one status; return whether to go on with others."""
        try:
            await self._writes.patch_universe_status(name, status)
        except NotFound:
            return True  # the watch is about to tell that it is gone
        except ClusterError as error:
            _log.warning("universe_status_not_written", extra={"key": name, "reason": str(error)})
            self._tenure.count("status_writes_total", RESOURCE, "failed")
            return False
        self._written[name] = status
        self._tenure.count("status_writes_total", RESOURCE, "done")
        return True

    async def _status(self, name: str, quota: Workload) -> QuotaStatusConditions | None:
        """Return the status a quota should have, None while it is changing."""
        name_ = accounts.universe(name)
        account = self._tenure.view.state.accounts.get(name_)
        conditions = self._conditions(name, quota, in_effect=account is not None)
        if account is None:
            return {"hard": {}, "used": {}, "clusters": [], "conditions": conditions}
        shares = await self._breakdown.of(name_)
        if shares is None or self._tenure.view.state.accounts.get(name_) is not account:
            return None
        state = self._tenure.view.state
        limits = {line: state.limit[line] for line in account.lines.values()}
        used = {line: state.used[line] for line in account.lines.values()}
        return {
            "hard": self._shown(account, limits),
            "used": self._shown(account, used),
            "clusters": self._clusters(account, shares),
            "conditions": conditions,
        }

    def _clusters(self, account: Account, shares: NamespaceUsage) -> list[QuotaStatusConditions]:
        """Return what each cluster and each of its namespaces uses, those that use anything."""
        using = {name: share for name, share in shares.items() if any(share.values())}
        most = sorted(using, key=lambda name: (-max(using[name].values()), name))[:NAMESPACES_MAX]
        sums: dict[str, dict[int, int]] = defaultdict(dict)
        for name, share in using.items():
            total = sums[name.partition("/")[0]]
            for line, amount in share.items():
                total[line] = total.get(line, 0) + amount
        return [
            {
                "name": cluster,
                "used": self._shown(account, sums[cluster]),
                "namespaces": [
                    {"name": name.partition("/")[2], "used": self._shown(account, using[name])}
                    for name in sorted(most)
                    if name.startswith(f"{cluster}/")
                ],
            }
            for cluster in sorted(sums)
        ]

    def _shown(self, account: Account, amounts: dict[int, int]) -> dict[str, str]:
        rules = self._tenure.settings.rules
        return {
            key: hard_limits.quantity(key, amounts.get(account.lines[key], 0), rules)
            for key in sorted(account.lines)
        }

    def _conditions(
        self, name: str, quota: Workload, *, in_effect: bool
    ) -> list[QuotaStatusConditions]:
        warnings = self._universe.warnings.of(accounts.universe(name))
        known = self._written.get(name) or quota.status or {}
        effect = Condition(IN_EFFECT, "True", "Enforced", "Its limits hold.")
        if not in_effect:
            message = "It limits nothing that is counted."
            effect = Condition(IN_EFFECT, "False", "LimitsNothing", message)
        understood = Condition(_UNDERSTOOD, "True", "AsWritten", "Everything in it is understood.")
        if warnings:
            message = "; ".join(warnings)[:_MESSAGE_MAX]
            understood = Condition(_UNDERSTOOD, "False", "Warnings", message)
        generation, now = quota.metadata.generation, self._tenure.now()
        return [one.shown(known, generation, now) for one in (effect, understood)]
