"""Claim index: the ResourceClaims of a cluster, by uid and by the pod that they belong to.

A claim belongs to a pod if its controller is that pod and an annotation names the pod's claim, or
marks it as the claim of extended resources. Any user may write both, so the index proves nothing;
`claim_store` decides whether a claim counts with its pod.

The watch of settlement notes and drops claims. A review notes the claim that it allows, because the
watch shows it later; this note ends when the watch shows the claim, or after a minute.
"""

import asyncio
import time
from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Final

from ledger.kube.resource_claims.dra_objects import ResourceClaim

CLAIM_NAME_ANNOTATION: Final = "resource.kubernetes.io/pod-claim-name"
"""The annotation of a generated claim: the name in `spec.resourceClaims` of its pod."""

EXTENDED_ANNOTATION: Final = "resource.kubernetes.io/extended-resource-claim"
"""The annotation of a claim that serves extended resources; its value is `true`."""

EXTENDED: Final = ""
"""The name in the index for claims of extended resources. No claim of a pod has an empty name."""

CLAIMS_MAX: Final = 200_000
"""Most claims that the watch has noted. Further claims are charged with their pod's template."""

REVIEWED_MAX: Final = 4_096
"""Most claims that reviews have noted and the watch has not shown."""

REVIEWED_SECONDS: Final = 60.0
"""Seconds after which a reviewed claim that the watch has not shown is forgotten."""

Place = tuple[str, str]
"""The uid of a pod, and the name of one of its claims or `EXTENDED`."""

_NO_CLAIMS: Final[Mapping[str, ResourceClaim]] = MappingProxyType({})


def place_of(claim: ResourceClaim) -> Place | None:
    """Return the pod that a claim belongs to by its references, None if it names none."""
    meta = claim.metadata
    owner = meta.controller()
    if owner is None or (owner.api_version, owner.kind) != ("v1", "Pod") or not owner.uid:
        return None
    annotations = meta.annotations or {}
    if annotations.get(EXTENDED_ANNOTATION) == "true":
        return owner.uid, EXTENDED
    name = annotations.get(CLAIM_NAME_ANNOTATION, "")
    return (owner.uid, name) if name else None


def loop_time() -> float:
    """Return the time of the running event loop in seconds, else the monotonic time."""
    try:
        return asyncio.get_running_loop().time()
    except RuntimeError:
        return time.monotonic()


class ClaimIndex:
    """The claims of one cluster."""

    def __init__(self, clock: Callable[[], float] = loop_time) -> None:
        """`clock` returns seconds, from any beginning."""
        self._clock = clock
        self._by_uid: dict[str, ResourceClaim] = {}
        self._by_place: dict[Place, dict[str, ResourceClaim]] = {}
        self._by_address: dict[tuple[str, str], str] = {}
        self._reviewed: dict[str, float] = {}
        self.has_rejected = False
        """Whether the full index has not taken a claim since the last list."""

    def __len__(self) -> int:
        """Return the number of claims."""
        return len(self._by_uid)

    def note(self, claim: ResourceClaim) -> None:
        """Take a claim of the watch, which replaces an earlier version."""
        uid = claim.metadata.uid
        self._reviewed.pop(uid, None)
        self._put(claim)

    def note_reviewed(self, claim: ResourceClaim) -> None:
        """Take a claim that a review allows, until the watch shows it."""
        self._expire()
        uid = claim.metadata.uid
        if uid in self._by_uid and uid not in self._reviewed:
            return  # the watch has shown it, perhaps in a newer version
        if len(self._reviewed) >= REVIEWED_MAX:
            self.drop(next(iter(self._reviewed)))
        self._reviewed.pop(uid, None)
        self._reviewed[uid] = self._clock()
        self._put(claim)

    def drop(self, uid: str) -> None:
        """Remove a claim; an unknown uid changes nothing."""
        self._reviewed.pop(uid, None)
        held = self._by_uid.pop(uid, None)
        if held is None:
            return
        address = held.metadata.namespace, held.metadata.name
        if self._by_address.get(address) == uid:
            del self._by_address[address]
        place = place_of(held)
        siblings = self._by_place.get(place) if place is not None else None
        if place is not None and siblings is not None:
            siblings.pop(uid, None)
            if not siblings:
                del self._by_place[place]

    def relist(self, claims: Iterable[ResourceClaim]) -> None:
        """Replace all claims by those of a list, except recently reviewed ones."""
        self._expire()
        self.has_rejected = False
        listed = {claim.metadata.uid: claim for claim in claims}
        for uid in [uid for uid in self._by_uid if uid not in listed]:
            if uid not in self._reviewed:
                self.drop(uid)
        for claim in listed.values():
            self.note(claim)

    def of_name(self, namespace: str, name: str) -> ResourceClaim | None:
        """Return the claim of a name, None if it is not known."""
        self._expire()
        return self._by_uid.get(self._by_address.get((namespace, name), ""))

    def at(self, place: Place) -> tuple[ResourceClaim, ...]:
        """Return the claims that name a pod's claim, in the order in which they became known."""
        self._expire()
        return tuple(self._by_place.get(place, _NO_CLAIMS).values())

    def is_reviewed_only(self, uid: str) -> bool:
        """Return whether a review has noted a claim that the watch has not shown."""
        return uid in self._reviewed

    def reviewed_seconds(self, uid: str) -> float:
        """Return the seconds since the review of a claim that only a review has noted."""
        return self._clock() - self._reviewed[uid]

    def _put(self, claim: ResourceClaim) -> None:
        meta = claim.metadata
        if meta.uid in self._by_uid:
            reviewed = self._reviewed.get(meta.uid)
            self.drop(meta.uid)  # its place may have changed
            if reviewed is not None:
                self._reviewed[meta.uid] = reviewed
        elif len(self._by_uid) >= CLAIMS_MAX:
            self.has_rejected = True
            self._reviewed.pop(meta.uid, None)
            return
        self._by_uid[meta.uid] = claim
        self._by_address[meta.namespace, meta.name] = meta.uid
        place = place_of(claim)
        if place is not None:
            self._by_place.setdefault(place, {})[meta.uid] = claim

    def _expire(self) -> None:
        while self._reviewed:
            uid, since = next(iter(self._reviewed.items()))
            if since > self._clock() - REVIEWED_SECONDS:
                return
            self.drop(uid)
