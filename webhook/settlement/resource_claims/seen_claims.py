"""Seen claims: ResourceClaims as a list or a watch returns them, and the pods that own them. Pure.

A claim belongs to a pod only if both agree: the claim's controller is the pod, by uid, and the
pod's status names the claim. Annotations prove nothing.
"""

from typing import Final

import msgspec

from ledger.kube.api.api_resources import CLAIMS
from ledger.kube.api.objects import ObjectMeta, OwnerReference, Pod, Workload
from ledger.kube.resource_claims.dra_objects import ResourceClaim, claim_of

CLAIM_KEYS: Final = f"{CLAIMS.name}/"
"""Prefix of the keys of resource claims."""


class SeenClaim(msgspec.Struct, frozen=True, gc=False):
    """A claim, or its metadata and the error with which it could not be decoded."""

    claim: ResourceClaim
    unreadable: Exception | None = None

    def metadata(self) -> ObjectMeta:
        """Return the metadata of the claim."""
        return self.claim.metadata


def seen_claim(stored: Workload) -> SeenClaim:
    """Return an object of a list or a watch as a claim. Never raises."""
    try:
        return SeenClaim(claim_of(stored))
    except Exception as error:  # noqa: BLE001 - one object may not stop the watch
        return SeenClaim(ResourceClaim(stored.metadata), error)


def owning_pod(claim: ResourceClaim) -> OwnerReference | None:
    """Return the reference to the pod that controls a claim, None if no pod does."""
    owner = claim.metadata.controller()
    is_pod = owner is not None and owner.kind == "Pod" and owner.api_version == "v1"
    return owner if is_pod else None


def charge_basis(claim: ResourceClaim) -> tuple[object, ...]:
    """Return the fields that decide how a claim is charged, besides its spec, which is immutable.

    Most writes of a claim change something else, such as a finalizer or its consumers.
    """
    meta = claim.metadata
    return meta.owner_references, meta.annotations, claim.status.allocation


def has_own_claims(pod: Pod) -> bool:
    """Return whether claims are made for this pod: from templates, or for extended resources."""
    if pod.status.extended_resource_claim_status is not None:
        return True
    return any(wanted.resource_claim_template_name for wanted in pod.spec.resource_claims or ())


def names_claim(pod: Pod, claim: ResourceClaim) -> bool:
    """Return whether the status of a pod names a claim, which is in the same namespace."""
    if claim.metadata.namespace != pod.metadata.namespace:
        return False
    name, extended = claim.metadata.name, pod.status.extended_resource_claim_status
    if extended is not None and extended.resource_claim_name == name:
        return True
    generated = pod.status.resource_claim_statuses or ()
    return any(status.resource_claim_name == name for status in generated)
