"""ResourceQuota accounts: each ResourceQuota with managed keys limits its namespace."""

from typing import Final

from ledger.core.model import accounts
from ledger.core.model.commands import CloseAccount, SetLimits
from ledger.core.model.qualified_names import qualified
from ledger.kube.api.cluster_ports import Change, Changed, Listed
from ledger.kube.api.objects import ResourceQuota
from ledger.kube.quotas.resource_quota_limits import limits_of
from ledger.tasks.periodic import CooperativeYield
from webhook.quotas.limits_already_recorded import has_limits
from webhook.quotas.quota_warnings import QuotaWarnings
from webhook.settlement.charge_settlement_session import RECOUNTED, WATCHED, SettlementSession

QUOTAS: Final = "quotas"
"""Name of the informer of ResourceQuotas in readiness."""


class ResourceQuotaAccounts:
    """Keeps the accounts of one cluster's ResourceQuotas up to date, with their `warnings`."""

    def __init__(self, session: SettlementSession) -> None:
        self._session = session
        self.warnings = QuotaWarnings()

    async def take(self, change: Change[ResourceQuota]) -> None:
        """Queue the commands that follow from a change of the watch."""
        if isinstance(change, Listed):
            await self._recount(change.objects)
        elif isinstance(change, Changed) and change.deleted:
            await self._close(self._account(change.object), WATCHED)
        elif isinstance(change, Changed):
            await self._set(change.object, WATCHED)

    async def _recount(self, quotas: list[ResourceQuota]) -> None:
        """Set every account again, and close the accounts of deleted quotas."""
        await self._session.catch_up()
        stride = CooperativeYield()
        for quota in quotas:
            with self._session.failures.taking(QUOTAS, quota.metadata.full_name()):
                await self._set(quota, RECOUNTED)
            await stride.step()
        present = {self._account(quota) for quota in quotas}
        self.warnings.keep(present)
        for account in self._session.quota_accounts():
            if account not in present:
                await self._close(account, RECOUNTED)
        await self._session.commands.flush()

    async def _set(self, quota: ResourceQuota, actor: str) -> None:
        """Set an account's limits; a quota without managed keys has no account."""
        session = self._session
        account, meta = self._account(quota), quota.metadata
        settings = session.settings
        read = limits_of(quota, settings.rules, zero_is_unlimited=settings.zero_is_unlimited)
        self.warnings.note(account, read.warnings)
        if not read.limits:
            await self._close(account, actor, forget=False)
            return
        covers = (qualified(session.name, meta.namespace),)
        command = SetLimits(
            account, covers, read.limits, actor, meta.version(), selects=read.selects
        )
        if session.commands.is_pending("", account) or not has_limits(session.view.state, command):
            await session.commands.send(command)

    async def _close(self, account: str, actor: str, *, forget: bool = True) -> None:
        if forget:
            self.warnings.forget(account)
        is_open = account in self._session.view.state.accounts
        if is_open or self._session.commands.is_pending("", account):
            await self._session.commands.send(CloseAccount(account, actor))

    def _account(self, quota: ResourceQuota) -> str:
        meta = quota.metadata
        return accounts.quota(self._session.name, meta.namespace, meta.name)
