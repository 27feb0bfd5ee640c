"""The status of ResourceQuotas: what the ledger counts, where `kubectl describe quota` shows it.

Only `limits.` keys with a domain are written: Kubernetes shows them and never counts them. It is a
copy for people; nothing here reads it back to decide. Changes gather for a while, one write is
under way at a time, and a quota that is written by somebody else is left to the next round.
"""

import logging
from itertools import islice
from typing import Final

import msgspec

from ledger.core.model import accounts
from ledger.core.model.state import Account
from ledger.kube.api.errors import ClusterError, Conflict, NotFound
from ledger.kube.api.objects import ObjectMeta, Quantities, ResourceQuota
from ledger.kube.api.ports import Change, Changed, Listed, Writes
from ledger.kube.quotas import hard_limits
from ledger.kube.requests import quantities
from ledger.kube.requests.quantities import QuantityError
from ledger.tasks.backoff import Backoff
from ledger.tasks.periodic import CooperativeYield
from webhook.settlement.settlement_session import SettlementSession

WRITE_SECONDS: Final = 3.0
"""How often it is looked what has changed: each write makes a new version of the quota."""

WRITES_MAX: Final = 20
"""Quotas that are written in one round."""

RETRY_SECONDS: Final = 5.0
RETRY_SECONDS_MAX: Final = 120.0

_log: Final = logging.getLogger(__name__)


class _Told(msgspec.Struct, frozen=True, gc=False):
    """A quota as the watch told it last: its version, and what it says is used of our keys."""

    namespace: str
    name: str
    version: int
    used: dict[str, int]


class ResourceQuotaStatus:
    """Keeps the status of one cluster's ResourceQuotas at what the ledger counts."""

    def __init__(self, tenure: SettlementSession, writes: Writes) -> None:
        self._tenure = tenure
        self._writes = writes
        self._told: dict[str, _Told] = {}
        self._backoff = Backoff(RETRY_SECONDS, RETRY_SECONDS_MAX)

    def take(self, change: Change[ResourceQuota]) -> None:
        """Take note of quotas as they are told."""
        if isinstance(change, Listed):
            self._told = {self._account(one.metadata): _told(one) for one in change.objects}
        elif isinstance(change, Changed) and change.deleted:
            self._told.pop(self._account(change.object.metadata), None)
        elif isinstance(change, Changed):
            self._told[self._account(change.object.metadata)] = _told(change.object)

    async def write(self) -> None:
        """Write what has changed, unless writing has just failed."""
        if not self._backoff.is_over():
            return
        stride, changed = CooperativeYield(), dict[str, dict[str, int]]()
        for account, told in list(self._told.items()):
            await stride.step()
            used = self._used(account)
            if used and used != {key: told.used.get(key) for key in used}:
                changed[account] = used
        for account, used in islice(changed.items(), WRITES_MAX):
            if not await self._write(self._told.get(account), used):
                self._backoff.failed()
                return
        self._backoff.reset()

    async def _write(self, told: _Told | None, used: dict[str, int]) -> bool:
        """Write one status; return whether to go on with others."""
        if told is None:
            return True
        rules = self._tenure.settings.rules
        shown = {key: hard_limits.quantity(key, amount, rules) for key, amount in used.items()}
        try:
            await self._writes.patch_quota_status(told.namespace, told.name, shown, told.version)
        except NotFound:
            return True  # the watch is about to tell that it is gone
        except Conflict:
            self._count("conflict")
            return True  # the watch is about to tell what it is now
        except ClusterError as error:
            where = f"{told.namespace}/{told.name}"
            _log.warning("quota_status_not_written", extra={"key": where, "reason": str(error)})
            self._count("failed")
            return False
        self._count("done")
        return True

    def _count(self, outcome: str) -> None:
        self._tenure.count("status_writes_total", "resourcequotas", outcome)

    def _used(self, account: str) -> dict[str, int]:
        """Return what the ledger counts by our keys, in the unit in which it is written."""
        state, rules = self._tenure.view.state, self._tenure.settings.rules
        known: Account | None = state.accounts.get(account)
        return {
            key: _number(hard_limits.quantity(key, state.used[line], rules))
            for key, line in (known.lines if known is not None else {}).items()
            if _is_ours(key)
        }

    def _account(self, meta: ObjectMeta) -> str:
        return accounts.quota(self._tenure.name, meta.namespace, meta.name)


def _told(quota: ResourceQuota) -> _Told:
    meta, used = quota.metadata, quota.status.used or {}
    return _Told(meta.namespace, meta.name, meta.version(), _numbers(used))


def _numbers(used: Quantities) -> dict[str, int]:
    return {key: _number(value) for key, value in used.items() if _is_ours(key)}


def _number(value: str | int) -> int:
    """Return a quantity as a number to compare by, -1 for what is none."""
    try:
        return quantities.parse_scaled(value)
    except QuantityError:
        return -1


def _is_ours(key: str) -> bool:
    return key.startswith("limits.") and "/" in key
