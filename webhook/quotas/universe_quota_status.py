"""UniverseResourceQuota status: limits and usage in total, by cluster and by namespace.

Only the authority (`universe_authority`) writes it, on change and every few seconds at most. The
status is for people; no decision reads it.
"""

from collections import defaultdict
from typing import Final

from ledger.core.model import accounts
from ledger.core.model.state import Account
from ledger.kube.api.api_resources import UNIVERSE_QUOTAS
from ledger.kube.api.objects import Workload
from ledger.kube.quotas import hard_limits
from webhook.quotas.changed_statuses import ChangedStatusWriter
from webhook.quotas.status_conditions import Condition, ObjectStatus, ready
from webhook.quotas.universe_quota_accounts import UniverseQuotaAccounts
from webhook.quotas.usage_by_namespace import NamespaceUsage, UsageByNamespace
from webhook.settlement.charge_settlement_session import SettlementSession

WRITE_SECONDS: Final = 5.0
"""Period of the writes."""

NAMESPACES_MAX: Final = 1_000
"""Namespaces in a status, those that use most; all are in their cluster's sum."""

IN_EFFECT: Final = "InEffect"
"""The type of the condition that shows whether a quota limits anything."""

SUMMARY_MAX: Final = 1_024
"""Characters of a summary in a status; the definition allows no more."""

_VENDOR: Final = "nvidia.com/"
_UNDERSTOOD: Final = "Understood"
_MESSAGE_MAX: Final = 4_096


class UniverseQuotaStatusWriter:
    """Writes the amounts that the ledger counts to this cluster's UniverseResourceQuotas."""

    def __init__(
        self,
        session: SettlementSession,
        *,
        universe_quotas: UniverseQuotaAccounts,
        usage: UsageByNamespace,
    ) -> None:
        self._session = session
        self._universe_quotas = universe_quotas
        self._usage = usage
        self._statuses = ChangedStatusWriter(session, UNIVERSE_QUOTAS)

    async def write(self) -> None:
        """Write the statuses that have changed, unless a write has just failed."""
        await self._statuses.write(self._universe_quotas.existing, self._status)

    async def _status(self, quota: Workload, known: ObjectStatus) -> ObjectStatus | None:
        """Return the status that a quota should have, None while its account is changing."""
        name = accounts.universe(quota.metadata.name)
        account = self._session.view.state.accounts.get(name)
        conditions = self._conditions(quota, known, in_effect=account is not None)
        if account is None:
            return {"summary": "", "hard": {}, "used": {}, "clusters": [], "conditions": conditions}
        shares = await self._usage.of(name)
        if shares is None or self._session.view.state.accounts.get(name) is not account:
            return None
        state = self._session.view.state
        limits = {line: state.limit[line] for line in account.lines.values()}
        hard = self._shown(account, limits)
        used = self._shown(account, {line: state.used[line] for line in account.lines.values()})
        return {
            "summary": summary(used, hard),
            "hard": hard,
            "used": used,
            "clusters": self._clusters(account, shares),
            "conditions": conditions,
        }

    def _clusters(self, account: Account, shares: NamespaceUsage) -> list[ObjectStatus]:
        """Return the usage of each cluster and namespace that uses anything."""
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
        rules = self._session.settings.rules
        return {
            key: hard_limits.quantity(key, amounts.get(account.lines[key], 0), rules)
            for key in sorted(account.lines)
        }

    def _conditions(
        self, quota: Workload, known: ObjectStatus, *, in_effect: bool
    ) -> list[ObjectStatus]:
        warnings = self._universe_quotas.warnings.of(accounts.universe(quota.metadata.name))
        effect = Condition(IN_EFFECT, "True", "Enforced", "Its limits hold.")
        if not in_effect:
            message = "It limits nothing that is counted."
            effect = Condition(IN_EFFECT, "False", "LimitsNothing", message)
        understood = Condition(_UNDERSTOOD, "True", "AsWritten", "Everything in it is understood.")
        if warnings:
            message = "; ".join(warnings)[:_MESSAGE_MAX]
            understood = Condition(_UNDERSTOOD, "False", "Warnings", message)
        generation, now = quota.metadata.generation, self._session.now()
        shown = (ready((effect, understood)), effect, understood)
        return [condition.shown(known, generation, now) for condition in shown]


def summary(used: dict[str, str], hard: dict[str, str]) -> str:
    """Return used and limit of each resource, `gpu: 2/4, gpumem: 8000/16000`.

    A text of more than `SUMMARY_MAX` characters ends with an ellipsis.
    """
    parts = (
        f"{accounts.resource_of(key).replace(_VENDOR, '', 1)}: {used[key]}/{hard[key]}"
        for key in sorted(hard)
    )
    text = ", ".join(parts)
    return text if len(text) <= SUMMARY_MAX else f"{text[: SUMMARY_MAX - 1]}…"
