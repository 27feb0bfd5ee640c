"""Claim demands: the port by which a pod's demand includes that of its resource claims.

The port keeps `demand_of` independent of the caches that hold templates, claims, classes and
slices. `webhook.context.resource_claims` implements it on the watches of one cluster.
"""

from typing import Final, Protocol

from ledger.core.model.denials import Denial
from ledger.kube.api.objects import Pod
from ledger.kube.requests.demand import NO_DEMAND, Demand


class ClaimDemands(Protocol):
    """The demand of the resource claims that belong to a pod's charge."""

    def of_pod(self, pod: Pod) -> Demand | Denial:
        """Return the sum over the claims that are generated for the pod from templates.

        A claim that is allocated counts with its allocation, another with its bound. A claim that
        the pod names counts by itself and adds nothing here. The denial's field is that of the pod.
        """
        ...

    def card_claim(self, pod: Pod) -> str:
        """Return the name of a resource claim by which the pod uses cards, "" if none is known.

        Claims that count by themselves are included, and those of extended resources.
        """
        return ""


class _NoClaims(ClaimDemands):
    def of_pod(self, pod: Pod) -> Demand | Denial:
        return NO_DEMAND


NO_CLAIMS: Final[ClaimDemands] = _NoClaims()
"""Without a cluster to read from, claims of pods are not counted."""
