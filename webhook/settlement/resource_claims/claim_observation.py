"""Claim observation: what a resource claim takes that is charged at its own key. Pure."""

import msgspec

from ledger.core.model.denials import Denial, sentence
from ledger.core.model.events import Cause
from ledger.core.model.qualified_names import qualified
from ledger.core.model.traits import Traits
from ledger.kube.requests.demand import Demand
from ledger.kube.resource_claims.allocation import Allocated
from ledger.kube.resource_claims.dra_objects import ResourceClaim
from webhook.context.admitted_demand import awaited_of
from webhook.settlement.observation_commands import ObservedObject
from webhook.settlement.resource_claims.seen_claims import CLAIM_KEYS


def identity_of(claim: ResourceClaim, cluster: str) -> ObservedObject:
    """Return the key, uid and version of a claim, without a demand.

    Raises ValueError if its resourceVersion is not a number.
    """
    meta = claim.metadata
    return ObservedObject(
        qualified(cluster, meta.namespace), CLAIM_KEYS + meta.name, meta.uid, meta.version(), {}
    )


def observe_deleted_claim(claim: ResourceClaim, cluster: str) -> ObservedObject:
    """Return the observation of a claim that was deleted."""
    return msgspec.structs.replace(identity_of(claim, cluster), cause=Cause.DELETED)


def observe_claim(
    claim: ResourceClaim,
    cluster: str,
    demand: Demand | Denial,
    *,
    given: Allocated | None,
    traits: Traits,
) -> ObservedObject:
    """Return the observation of a claim that is charged at its own key.

    `given` is what it was allocated, None if its demand is a bound. The bound stays when classes or
    slices change: devices that are withdrawn may come back before the allocation.
    """
    seen = identity_of(claim, cluster)
    devices = given.devices if given is not None else ()
    if isinstance(demand, Denial):
        return msgspec.structs.replace(seen, problem=sentence(demand), devices=devices)
    return msgspec.structs.replace(
        seen,
        demand=demand.amounts,
        assumed=demand.assumed,
        devices=devices,
        traits=traits,
        awaited=awaited_of({}, unresolved=given is None),
    )
