"""Preemption claim expiry: claims are withdrawn after `claim_seconds`, so that no cards stay
kept."""

import asyncio

from extender.settlement.card_reconciler_context import SETTLED, CardReconcilerContext
from ledger.core.model.cards import PreemptionClaim
from ledger.core.model.commands import Withdraw
from ledger.core.model.events import Cause


class ClaimExpiry:
    """Withdraws the claims of one cluster. Their ages are on this replica's own clock."""

    def __init__(self, context: CardReconcilerContext) -> None:
        self._context = context
        self._since: dict[PreemptionClaim, float] = {}

    async def settle(self) -> None:
        """Withdraw the claims that have reached their age limit."""
        now = asyncio.get_running_loop().time()
        standing = self._standing()
        self._since = {claim: self._since.get(claim, now) for claim in standing}
        for claim, since in self._since.items():
            if now - since >= self._context.settings.claim_seconds:
                where = claim.namespace, claim.key, claim.uid
                await self._context.commands.send(Withdraw(*where, Cause.ELAPSED, SETTLED))

    def _standing(self) -> list[PreemptionClaim]:
        claims = self._context.view.state.claims.items()
        return [claim for node, kept in claims if self._context.owns(node) for claim in kept]
