"""Universe authority: the UniverseResourceQuotas of one cluster alone set limits of the ledger.

The setting `universe_authority` marks that cluster. Elsewhere these quotas change nothing in the
ledger, and their status has the condition InEffect False, reason NotTheAuthority. Without that
status, users would rely on them.
"""

from collections.abc import Awaitable, Callable
from typing import Final, NamedTuple

import structlog

from ledger.kube.api.cluster_errors import ClusterError, NotFound
from ledger.kube.api.cluster_ports import Change, Changed, Listed
from ledger.kube.api.objects import Workload
from ledger.tasks.backoff import Backoff
from webhook.quotas.status_conditions import Condition, QuotaStatusConditions, ready
from webhook.quotas.universe_quota_accounts import UniverseQuotaAccounts
from webhook.quotas.universe_quota_status import (
    IN_EFFECT,
    RESOURCE,
    RETRY_SECONDS,
    RETRY_SECONDS_MAX,
    UniverseQuotaStatusWriter,
)
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
        self._due: dict[str, Workload] = {}
        self._backoff = Backoff(RETRY_SECONDS, RETRY_SECONDS_MAX)

    async def take(self, change: Change[Workload]) -> None:
        """Take note of the quotas whose status lacks the condition."""
        if isinstance(change, Listed):
            self._due.clear()
            for quota in change.objects:
                self._note(quota)
        elif isinstance(change, Changed) and change.deleted:
            self._due.pop(change.object.metadata.name, None)
        elif isinstance(change, Changed):
            self._note(change.object)

    async def write(self) -> None:
        """Write the statuses that are due, unless a write has just failed."""
        if not self._backoff.is_over():
            return
        for name, quota in list(self._due.items()):
            try:
                await self._session.cluster.patch_universe_status(name, self._status(quota))
            except NotFound:
                pass  # the watch is about to report the deletion
            except ClusterError as error:
                _log.warning("universe_status_not_written", key=name, reason=str(error))
                self._session.count("status_writes_total", RESOURCE, "failed")
                self._backoff.failed()
                return
            else:
                self._session.count("status_writes_total", RESOURCE, "done")
            self._due.pop(name, None)
        self._backoff.reset()

    def _note(self, quota: Workload) -> None:
        name, known = quota.metadata.name, quota.status or {}
        if known.get("conditions") == self._status(quota)["conditions"]:
            self._due.pop(name, None)
            return
        _log.warning("quota_ignored", key=name, reason=NOT_IN_EFFECT.message)
        self._due[name] = quota

    def _status(self, quota: Workload) -> QuotaStatusConditions:
        generation, now = quota.metadata.generation, self._session.now()
        shown = [
            condition.shown(quota.status or {}, generation, now)
            for condition in (ready([NOT_IN_EFFECT]), NOT_IN_EFFECT)
        ]
        return {"summary": "", "hard": {}, "used": {}, "clusters": [], "conditions": shown}
