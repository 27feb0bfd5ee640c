"""ResourceQuota status: the usage in the ledger, for `kubectl describe quota`.

Only `limits.` keys with a domain are written: Kubernetes shows them and never counts them. The
status is for people; no decision reads it. Changes are collected for a few seconds, and written one
after another. A quota that another client changes meanwhile is written in the next round.
"""

from itertools import islice
from typing import Final

import msgspec
import structlog

from ledger.core.model import accounts
from ledger.core.model.state import Account
from ledger.kube.api.cluster_errors import ClusterError, NotFound, VersionConflict
from ledger.kube.api.cluster_ports import Change, Changed, Listed
from ledger.kube.api.objects import ObjectMeta, Quantities, ResourceQuota
from ledger.kube.quotas import hard_limits
from ledger.kube.requests import quantities
from ledger.kube.requests.quantities import QuantityError
from ledger.tasks.backoff import Backoff
from ledger.tasks.periodic import CooperativeYield
from webhook.settlement.charge_settlement_session import SettlementSession

WRITE_SECONDS: Final = 3.0
"""Period of the writes: each one makes a new version of the quota."""

WRITES_MAX: Final = 20
"""Quotas that are written in one round."""

RETRY_SECONDS: Final = 5.0
RETRY_SECONDS_MAX: Final = 120.0

_log: Final = structlog.get_logger("webhook")


class _Seen(msgspec.Struct, frozen=True, gc=False):
    """A quota as the watch last reported it: its version, and the used amounts of our keys."""

    namespace: str
    name: str
    version: int
    used: dict[str, int]


class ResourceQuotaStatusWriter:
    """Writes the amounts that the ledger counts to the status of one cluster's ResourceQuotas."""

    def __init__(self, session: SettlementSession) -> None:
        self._session = session
        self._seen: dict[str, _Seen] = {}
        self._backoff = Backoff(RETRY_SECONDS, RETRY_SECONDS_MAX)

    def take(self, change: Change[ResourceQuota]) -> None:
        """Take note of changed quotas."""
        if isinstance(change, Listed):
            self._seen = {self._account(quota.metadata): _seen(quota) for quota in change.objects}
        elif isinstance(change, Changed) and change.deleted:
            self._seen.pop(self._account(change.object.metadata), None)
        elif isinstance(change, Changed):
            self._seen[self._account(change.object.metadata)] = _seen(change.object)

    async def write(self) -> None:
        """Write the amounts that have changed, unless a write has just failed."""
        if not self._backoff.is_over():
            return
        stride, changed = CooperativeYield(), dict[str, dict[str, int]]()
        for account, seen in list(self._seen.items()):
            await stride.step()
            used = self._used(account)
            if used and used != {key: seen.used.get(key) for key in used}:
                changed[account] = used
        for account, used in islice(changed.items(), WRITES_MAX):
            if not await self._write(self._seen.get(account), used):
                self._backoff.failed()
                return
        self._backoff.reset()

    async def _write(self, seen: _Seen | None, used: dict[str, int]) -> bool:
        """Write one status; return whether to continue with other quotas."""
        if seen is None:
            return True
        rules = self._session.settings.rules
        shown = {key: hard_limits.quantity(key, amount, rules) for key, amount in used.items()}
        try:
            await self._session.cluster.patch_quota_status(
                seen.namespace, seen.name, shown, seen.version
            )
        except NotFound:
            return True  # the watch is about to report the deletion
        except VersionConflict:
            self._count("conflict")
            return True  # the watch is about to report the change
        except ClusterError as error:
            where = f"{seen.namespace}/{seen.name}"
            _log.warning("quota_status_not_written", key=where, reason=str(error))
            self._count("failed")
            return False
        self._count("done")
        return True

    def _count(self, outcome: str) -> None:
        self._session.count("status_writes_total", "resourcequotas", outcome)

    def _used(self, account: str) -> dict[str, int]:
        """Return the used amounts of our keys in the unit in which they are written."""
        state, rules = self._session.view.state, self._session.settings.rules
        known: Account | None = state.accounts.get(account)
        return {
            key: _number(hard_limits.quantity(key, state.used[line], rules))
            for key, line in (known.lines if known is not None else {}).items()
            if _is_ours(key)
        }

    def _account(self, meta: ObjectMeta) -> str:
        return accounts.quota(self._session.name, meta.namespace, meta.name)


def _seen(quota: ResourceQuota) -> _Seen:
    meta, used = quota.metadata, quota.status.used or {}
    return _Seen(meta.namespace, meta.name, meta.version(), _numbers(used))


def _numbers(used: Quantities) -> dict[str, int]:
    return {key: _number(value) for key, value in used.items() if _is_ours(key)}


def _number(value: str | int) -> int:
    """Return a quantity as a number for comparison, -1 if it is malformed."""
    try:
        return quantities.parse_scaled(value)
    except QuantityError:
        return -1


def _is_ours(key: str) -> bool:
    return key.startswith("limits.") and "/" in key
