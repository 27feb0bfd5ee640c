"""Pod claim demands: the sum over the claims that are generated for a pod. Pure.

A claim that exists counts with its allocation, else with its bound. A claim that does not exist yet
counts with the bound of its template, as the deferred part of the demand: the template may be
another one than at the review. A template cannot be changed, so one that is older than a workload
is that of every review, and counts like the spec of the workload.
"""

from collections.abc import Mapping
from datetime import datetime
from typing import Protocol

import msgspec

from ledger.core.model.amounts import Amounts, largest, minus, most_of, plus
from ledger.core.model.denials import Denial
from ledger.kube.api.objects import ObjectMeta, Pod, PodResourceClaim
from ledger.kube.api.pod_gates import is_gated
from ledger.kube.requests.demand import NO_DEMAND, Demand
from ledger.kube.resource_claims.claim_demand import ClaimBound
from ledger.kube.resource_claims.dra_objects import ClaimSpec, ResourceClaim
from webhook.context.resource_claims.claim_denials import (
    both_unknown_denial,
    claim_field,
    of_template,
)
from webhook.context.resource_claims.named_objects import NamedObjects


class KnownClaims(Protocol):
    """The templates and claims of a cluster, and their amounts."""

    def existing(self, pod: Pod, named: PodResourceClaim) -> tuple[tuple[ResourceClaim, ...], bool]:
        """Return the claims that count with a pod for one of its claims, and whether any exists."""
        ...

    @property
    def templates(self) -> NamedObjects[ClaimSpec]:
        """The specs of the claims of templates."""
        ...

    @property
    def has_all_supply(self) -> bool:
        """Whether a class or slice that is not known did not exist a moment ago."""
        ...

    def of_claim(self, claim: ResourceClaim) -> Demand | Denial:
        """Return the allocation of a claim, else its bound."""
        ...

    def bound(self, spec: ClaimSpec) -> ClaimBound | Denial:
        """Return the most that a claim could consume."""
        ...


def demand_of_claims(
    pod: Pod, known: KnownClaims, instead: Mapping[str, ResourceClaim]
) -> Demand | Denial:
    """Return the demand of the claims that are generated for a pod.

    `instead` has the claims that count, by their name in the pod. A stored pod is never denied,
    because its templates may have changed after its review, and its charge may not end for that.
    """
    is_stored = bool(pod.metadata.resource_version)
    is_settled = is_stored and not is_gated(pod.spec)
    total = NO_DEMAND
    for number, named in enumerate(pod.spec.resource_claims or ()):
        if not named.resource_claim_template_name:
            continue
        part = _part(known, pod, number, named, instead.get(named.name))
        if isinstance(part, Denial):
            return part
        if is_settled and part.unknown:
            part = msgspec.structs.replace(part, memory_unknown="", unknown="")
        added = plus_demand(total, part)
        if isinstance(added, Denial):
            return added
        total = added
    return _bounded(total) if is_stored else total


def _bounded(demand: Demand) -> Demand:
    """Return the demand without its deferred part if that is beyond what a pod may request."""
    if all(amount <= most_of(name) // 2 for name, amount in demand.deferred.items()):
        return demand
    firm = minus(demand.amounts, demand.deferred)
    return msgspec.structs.replace(demand, amounts=firm, deferred={}, unresolved=True)


def _part(
    known: KnownClaims,
    pod: Pod,
    number: int,
    named: PodResourceClaim,
    instead: ResourceClaim | None,
) -> Demand | Denial:
    """Return the demand of one claim of a pod."""
    claims, any_exists = ((instead,), True) if instead else known.existing(pod, named)
    if not any_exists:
        return _of_template(known, pod, number, named)
    amounts: Amounts = {}
    assumed: tuple[str, ...] = ()
    unknown = ""
    unresolved = False
    for claim in claims:
        demand = known.of_claim(claim)
        if isinstance(demand, Denial):
            continue  # it can never be allocated
        amounts = largest(amounts, demand.amounts)
        assumed += demand.assumed
        unknown = unknown or demand.unknown
        unresolved = unresolved or demand.unresolved
    return Demand(
        amounts,
        claim_field(number) if unknown else "",
        unknown,
        assumed,
        unresolved=unresolved and instead is None,
    )


def _of_template(
    known: KnownClaims, pod: Pod, number: int, named: PodResourceClaim
) -> Demand | Denial:
    """Return the demand of a claim that does not exist yet."""
    meta, is_stored = pod.metadata, bool(pod.metadata.resource_version)
    name = named.resource_claim_template_name
    spec = known.templates.get(meta.namespace, name)
    if spec is None:
        unresolved = is_stored and not known.templates.is_complete
        return Demand({}, unresolved=True) if unresolved else NO_DEMAND
    bound = known.bound(spec)
    if isinstance(bound, Denial):
        return Demand({}, unresolved=True) if is_stored else of_template(bound, number, name)
    demand = bound.demand
    created = known.templates.created(meta.namespace, name)
    return Demand(
        demand.amounts,
        claim_field(number) if demand.unknown else "",
        demand.unknown,
        demand.assumed,
        {} if _is_of_every_review(meta, created) else demand.amounts,
        # Pods are charged one by one, so an envelope may fall once the supply is known.
        unresolved=demand.unresolved and is_stored and (bool(meta.uid) or not known.has_all_supply),
    )


def _is_of_every_review(meta: ObjectMeta, created: datetime | None) -> bool:
    """Return whether a template was there at all reviews of the workload of a pod template.

    Times are whole seconds. A template that was replaced in the second of the workload's creation
    may raise what is observed of the workload, which gives its pods no more room.
    """
    begun = meta.creation_timestamp
    return not meta.uid and begun is not None and created is not None and created <= begun


def plus_demand(left: Demand, right: Demand) -> Demand | Denial:
    """Return the sum of two demands; a second resource with an unknown amount is a denial."""
    if left.unknown and right.unknown and left.unknown != right.unknown:
        return both_unknown_denial(right.memory_unknown, left.unknown, right.unknown)
    first = left if left.unknown else right
    return Demand(
        plus(left.amounts, right.amounts),
        first.memory_unknown,
        first.unknown,
        (*left.assumed, *right.assumed),
        plus(left.deferred, right.deferred),
        left.unresolved or right.unresolved,
    )
