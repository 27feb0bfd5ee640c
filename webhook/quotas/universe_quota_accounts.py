"""UniverseResourceQuota accounts: each one with managed keys limits many namespaces.

They are kept up to date by the cluster that is the authority (`universe_authority`). Many
namespaces share such an account, so a workload counts only as far as a review has reserved its
demand. An unreviewed change must not use the headroom of other namespaces before a pod runs.
"""

from typing import Final

from ledger.core.model import accounts
from ledger.core.model.commands import CloseAccount, SetLimits
from ledger.kube.api.cluster_ports import Change, Changed, Listed
from ledger.kube.api.objects import Workload
from ledger.kube.quotas.universe_quota_limits import UniverseLimits, limits_of_universe, spec_of
from webhook.quotas.limits_already_recorded import has_limits
from webhook.quotas.quota_warnings import QuotaWarnings
from webhook.settlement.charge_settlement_session import RECOUNTED, WATCHED, SettlementSession

UNIVERSE: Final = "universe quotas"
"""Name of the informer of universe quotas in readiness."""


class UniverseQuotaAccounts:
    """Keeps the universe accounts of this cluster's UniverseResourceQuotas up to date.

    `existing` are the quotas by name. The account of a quota that cannot be read keeps its limits,
    and the quota has one of the `warnings`.
    """

    def __init__(self, session: SettlementSession) -> None:
        self.existing: dict[str, Workload] = {}
        self.warnings = QuotaWarnings()
        self._session = session

    async def take(self, change: Change[Workload]) -> None:
        """Queue the commands that follow from a change of the watch."""
        if isinstance(change, Listed):
            await self._recount(change.objects)
        elif isinstance(change, Changed) and change.deleted:
            await self._forget(change.object.metadata.name, WATCHED)
        elif isinstance(change, Changed):
            await self._set(change.object, WATCHED)

    async def _recount(self, quotas: list[Workload]) -> None:
        """Set every account again, and close the accounts of deleted quotas."""
        await self._session.catch_up()
        present = {quota.metadata.name for quota in quotas}
        for name in [name for name in self.existing if name not in present]:
            await self._forget(name, RECOUNTED)
        for quota in quotas:
            with self._session.failures.taking(UNIVERSE, quota.metadata.full_name()):
                await self._set(quota, RECOUNTED)
        prefix = accounts.universe("")
        for account in list(self._session.view.state.accounts):
            if account.startswith(prefix) and account.removeprefix(prefix) not in present:
                await self._close(account, RECOUNTED)
        await self._session.commands.flush()

    async def _set(self, quota: Workload, actor: str) -> None:
        session, meta = self._session, quota.metadata
        account = accounts.universe(meta.name)
        self.existing[meta.name] = quota
        read = self._read(quota)
        if read is None:
            return
        if not read.limits:
            await self._close(account, actor)
            return
        command = SetLimits(
            account,
            (),
            read.limits,
            actor,
            meta.version(),
            read.reach,
            read.selects,
            asked_only=True,
        )
        if session.commands.is_pending("", account) or not has_limits(session.view.state, command):
            await session.commands.send(command)

    def _read(self, quota: Workload) -> UniverseLimits | None:
        """Return the limits of a quota, None if they cannot be read."""
        settings, account = self._session.settings, accounts.universe(quota.metadata.name)
        try:
            read = limits_of_universe(
                spec_of(quota.spec), settings.rules, zero_is_unlimited=settings.zero_is_unlimited
            )
        except ValueError as error:
            self.warnings.note(account, (str(error),))
            return None
        self.warnings.note(account, read.warnings)
        return read

    async def _forget(self, name: str, actor: str) -> None:
        self.existing.pop(name, None)
        self.warnings.forget(accounts.universe(name))
        await self._close(accounts.universe(name), actor)

    async def _close(self, account: str, actor: str) -> None:
        is_open = account in self._session.view.state.accounts
        if is_open or self._session.commands.is_pending("", account):
            await self._session.commands.send(CloseAccount(account, actor))
