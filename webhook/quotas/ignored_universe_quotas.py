"""Universe quotas that do not count: those of a cluster that is not to supply them.

They change nothing in the ledger. Their status says so, or somebody would rely on them.
"""

import logging
from typing import Final

from ledger.kube.api.errors import ClusterError, NotFound
from ledger.kube.api.objects import Workload
from ledger.kube.api.ports import Change, Changed, Listed, Writes
from ledger.tasks.backoff import Backoff
from webhook.quotas.status_conditions import Condition, QuotaStatusConditions
from webhook.quotas.universe_quota_status import (
    IN_EFFECT,
    RESOURCE,
    RETRY_SECONDS,
    RETRY_SECONDS_MAX,
)
from webhook.settlement.settlement_session import SettlementSession

NOT_IN_EFFECT: Final = Condition(
    IN_EFFECT,
    "False",
    "NotTheAuthority",
    "It limits nothing: this cluster was told not to supply universe quotas"
    " (universe_authority). Create it in the cluster that does.",
)

_log: Final = logging.getLogger(__name__)


class IgnoredUniverseQuotas:
    """Says of this cluster's UniverseResourceQuotas, in their status, that they do not count."""

    def __init__(self, tenure: SettlementSession, writes: Writes) -> None:
        self._tenure = tenure
        self._writes = writes
        self._untold: dict[str, Workload] = {}
        self._backoff = Backoff(RETRY_SECONDS, RETRY_SECONDS_MAX)

    async def take(self, change: Change[Workload]) -> None:
        """Note the quotas whose status does not say it yet."""
        if isinstance(change, Listed):
            self._untold.clear()
            for quota in change.objects:
                self._note(quota)
        elif isinstance(change, Changed) and change.deleted:
            self._untold.pop(change.object.metadata.name, None)
        elif isinstance(change, Changed):
            self._note(change.object)

    async def write(self) -> None:
        """Write what is still to be said, unless writing has just failed."""
        if not self._backoff.is_over():
            return
        for name, quota in list(self._untold.items()):
            try:
                await self._writes.patch_universe_status(name, self._status(quota))
            except NotFound:
                pass  # the watch is about to tell that it is gone
            except ClusterError as error:
                extra = {"key": name, "reason": str(error)}
                _log.warning("universe_status_not_written", extra=extra)
                self._tenure.count("status_writes_total", RESOURCE, "failed")
                self._backoff.failed()
                return
            else:
                self._tenure.count("status_writes_total", RESOURCE, "done")
            self._untold.pop(name, None)
        self._backoff.reset()

    def _note(self, quota: Workload) -> None:
        name, known = quota.metadata.name, quota.status or {}
        if known.get("conditions") == self._status(quota)["conditions"]:
            self._untold.pop(name, None)
            return
        _log.warning("quota_ignored", extra={"key": name, "reason": NOT_IN_EFFECT.message})
        self._untold[name] = quota

    def _status(self, quota: Workload) -> QuotaStatusConditions:
        generation, now = quota.metadata.generation, self._tenure.now()
        shown = NOT_IN_EFFECT.shown(quota.status or {}, generation, now)
        return {"hard": {}, "used": {}, "clusters": [], "conditions": [shown]}
