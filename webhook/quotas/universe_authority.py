"""Universe authority: the UniverseResourceQuotas of one cluster alone set limits of the ledger.

The setting `universe_authority` marks that cluster. Elsewhere these quotas change nothing in the
ledger, and their status has the condition InEffect False, reason NotTheAuthority. Without that
status, users would rely on them.
"""

from collections.abc import Awaitable, Callable
from typing import Final, NamedTuple

import structlog

from ledger.kube.api.api_resources import UNIVERSE_QUOTAS
from ledger.kube.api.cluster_ports import Change, Changed, Listed
from ledger.kube.api.objects import Workload
from webhook.quotas.changed_statuses import ChangedStatusWriter
from webhook.quotas.status_conditions import Condition, ObjectStatus, ready
from webhook.quotas.universe_quota_accounts import UniverseQuotaAccounts
from webhook.quotas.universe_quota_status import IN_EFFECT, UniverseQuotaStatusWriter
from webhook.settlement.charge_settlement_session import SettlementSession

NOT_IN_EFFECT: Final = Condition(
    IN_EFFECT,
    "False",
    "NotTheAuthority",
    "It limits nothing: this cluster does not supply universe quotas"
    " (universe_authority). Create it in the cluster that does.",
)

_log: Final = structlog.get_logger("webhook")


class UniverseQuotaHandlers(NamedTuple):
    """The consumer of the watch of universe quotas, and the writer of their statuses."""

    take: Callable[[Change[Workload]], Awaitable[None]]
    write: Callable[[], Awaitable[None]]


def handlers_of_universe_quotas(
    session: SettlementSession, accounts: UniverseQuotaAccounts, status: UniverseQuotaStatusWriter
) -> UniverseQuotaHandlers:
    """Return the handlers of this cluster, by whether it is the authority."""
    if session.settings.universe_authority:
        return UniverseQuotaHandlers(accounts.take, status.write)
    ignored = IgnoredUniverseQuotas(session)
    return UniverseQuotaHandlers(ignored.take, ignored.write)


class IgnoredUniverseQuotas:
    """Writes the condition `NOT_IN_EFFECT` to this cluster's UniverseResourceQuotas."""

    def __init__(self, session: SettlementSession) -> None:
        self._session = session
        self._existing: dict[str, Workload] = {}
        self._statuses = ChangedStatusWriter(session, UNIVERSE_QUOTAS)

    async def take(self, change: Change[Workload]) -> None:
        """Take note of the existing quotas."""
        if isinstance(change, Listed):
            self._existing.clear()
            for quota in change.objects:
                self._note(quota)
        elif isinstance(change, Changed) and change.deleted:
            self._existing.pop(change.object.metadata.name, None)
        elif isinstance(change, Changed):
            self._note(change.object)

    async def write(self) -> None:
        """Write the statuses that lack the condition, unless a write has just failed."""
        await self._statuses.write(self._existing, self._status)

    def _note(self, quota: Workload) -> None:
        name, known = quota.metadata.name, quota.status or {}
        if known.get("conditions") != self._conditions(quota, known):
            _log.warning("quota_ignored", key=name, reason=NOT_IN_EFFECT.message)
        self._existing[name] = quota

    async def _status(self, quota: Workload, known: ObjectStatus) -> ObjectStatus:
        conditions = self._conditions(quota, known)
        return {"summary": "", "hard": {}, "used": {}, "clusters": [], "conditions": conditions}

    def _conditions(self, quota: Workload, known: ObjectStatus) -> list[ObjectStatus]:
        generation, now = quota.metadata.generation, self._session.now()
        return [
            condition.shown(known, generation, now)
            for condition in (ready([NOT_IN_EFFECT]), NOT_IN_EFFECT)
        ]
