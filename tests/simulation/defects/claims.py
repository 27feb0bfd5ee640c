"""Deliberate defects about resource claims, and the pods and roots that use them."""

from typing import Any, Final

import msgspec

from simulation.defects.planting import Defect, Put
from webhook.context.resource_claims.claim_store import ClaimStore
from webhook.settlement.resource_claims.resource_claim_reconciler import ResourceClaimReconciler


def _counted_with_claim_and_pod(put: Put) -> None:
    put(ClaimStore, "has_own_entry", lambda *_: False)


def _clearing_ignored(put: Put) -> None:
    honest = ResourceClaimReconciler._take

    async def take(self: ResourceClaimReconciler, seen: Any, *, deleted: bool) -> None:
        before = self.claims.of(seen.claim.metadata.uid)
        if before is not None and before.status.allocation is not None and not deleted:
            status = msgspec.structs.replace(seen.claim.status, allocation=before.status.allocation)
            claim = msgspec.structs.replace(seen.claim, status=status)
            seen = msgspec.structs.replace(seen, claim=claim)
        await honest(self, seen, deleted=deleted)

    put(ResourceClaimReconciler, "_take", take)


DEFECTS_OF_CLAIMS: Final = (
    Defect("claim-with-pod-and-alone", "a claim counts twice", _counted_with_claim_and_pod),
    Defect("clearing-ignored", "a cleared allocation stays charged", _clearing_ignored),
)
