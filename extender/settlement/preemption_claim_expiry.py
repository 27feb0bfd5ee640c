"""The expiry of preemption claims, which keep cards for a pod while its victims end."""

import asyncio

from extender.settlement.card_settlement_session import SETTLED, CardSettlementSession
from ledger.core.model.cards import PreemptionClaim
from ledger.core.model.commands import Withdraw
from ledger.core.model.events import Cause


class ClaimExpiry:
    """Withdraws the claims of one cluster. Their ages are on this replica's own clock."""

    def __init__(self, session: CardSettlementSession) -> None:
        self._session = session
        self._since: dict[PreemptionClaim, float] = {}

    async def settle(self) -> None:
        """Withdraw the claims that have reached their age limit."""
        now = asyncio.get_running_loop().time()
        standing = self._standing()
        self._since = {claim: self._since.get(claim, now) for claim in standing}
        for claim, since in self._since.items():
            if now - since >= self._session.settings.claim_seconds:
                where = claim.namespace, claim.key, claim.uid
                await self._session.commands.send(Withdraw(*where, Cause.ELAPSED, SETTLED))

    def _standing(self) -> list[PreemptionClaim]:
        claims = self._session.view.state.claims.items()
        return [one for node, kept in claims if self._session.owns(node) for one in kept]
