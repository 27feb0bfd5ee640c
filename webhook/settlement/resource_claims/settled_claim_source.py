"""Settled claim source: the port by which settlement reads and fills the claims of reviews.

`webhook.context.resource_claims` implements it on the watches of templates, classes and slices.
"""

from collections.abc import Iterable
from typing import Protocol

from ledger.core.model.denials import Denial
from ledger.core.model.devices import Devices
from ledger.kube.api.objects import Pod
from ledger.kube.requests.demand import Demand
from ledger.kube.resource_claims.allocation import Allocated
from ledger.kube.resource_claims.dra_objects import ResourceClaim


class ClaimSource(Protocol):
    """The claims that the demands of pods read, and what each of them takes."""

    def note_claim(self, claim: ResourceClaim) -> None:
        """Add or replace a claim."""
        ...

    def drop_claim(self, uid: str) -> None:
        """Remove a claim; an unknown uid changes nothing."""
        ...

    def relist_claims(self, claims: Iterable[ResourceClaim]) -> None:
        """Replace all claims by those of a list."""
        ...

    def has_own_entry(self, claim: ResourceClaim) -> bool:
        """Return whether the ledger has a charge or a hold of a claim at its own key."""
        ...

    def of_claim(self, claim: ResourceClaim) -> Demand | Denial:
        """Return the allocated amounts of a claim, or the most that it could take until then."""
        ...

    def allocation(self, claim: ResourceClaim) -> Allocated | None:
        """Return the amounts and devices of an allocated claim, None if it is not allocated."""
        ...

    def devices_of_pod(self, pod: Pod) -> Devices:
        """Return the devices of the claims that are charged with a pod."""
        ...
