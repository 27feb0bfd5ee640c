"""Claims by owner: the resource claims of the cluster, by uid, by name and by their pods.

Every claim is passed on to the source of demands, which reviews read, too.
"""

from collections.abc import Iterable, Iterator

from ledger.kube.resource_claims.dra_objects import ResourceClaim
from webhook.settlement.resource_claims.seen_claims import owning_pod
from webhook.settlement.resource_claims.settled_claim_source import ClaimSource


class ClaimsByOwner:
    """All claims of one session. `listed` is set once a list has shown them."""

    def __init__(self, source: ClaimSource) -> None:
        self.listed = False
        self._source = source
        self._claims: dict[str, ResourceClaim] = {}
        self._by_name: dict[tuple[str, str], str] = {}
        self._by_owner: dict[str, dict[str, None]] = {}
        self._sent: set[str] = set()

    def of(self, uid: str) -> ResourceClaim | None:
        """Return the claim of a uid."""
        return self._claims.get(uid)

    def named(self, namespace: str, name: str, owner: str) -> ResourceClaim | None:
        """Return the claim of this name if the pod of the uid `owner` controls it."""
        claim = self._claims.get(self._by_name.get((namespace, name), ""))
        reference = owning_pod(claim) if claim is not None else None
        return claim if reference is not None and reference.uid == owner else None

    def owned_by(self, pod: str) -> list[ResourceClaim]:
        """Return the claims whose controller is the pod of this uid."""
        return [self._claims[uid] for uid in self._by_owner.get(pod, ())]

    def owned(self) -> Iterator[ResourceClaim]:
        """Yield all claims whose controller is a pod."""
        for uids in list(self._by_owner.values()):
            yield from [self._claims[uid] for uid in uids]

    def put(self, claim: ResourceClaim) -> ResourceClaim | None:
        """Add or replace a claim; return its earlier version, None if it is new."""
        before = self._claims.get(claim.metadata.uid)
        self._set(claim)
        self._source.note_claim(claim)
        return before

    def drop(self, uid: str) -> None:
        """Remove a claim that is deleted."""
        self._sent.discard(uid)
        self._source.drop_claim(uid)
        self._remove(uid)

    def relist(self, claims: Iterable[ResourceClaim]) -> None:
        """Replace all claims by those of a list."""
        self._claims.clear()
        self._by_name.clear()
        self._by_owner.clear()
        for claim in claims:
            self._set(claim)
        self._sent.intersection_update(self._claims)
        self._source.relist_claims(list(self._claims.values()))
        self.listed = True

    def lose(self) -> None:
        """Forget all claims, because they cannot be listed."""
        self.relist(())
        self.listed = False

    def charged_alone(self, claim: ResourceClaim) -> bool:
        """Return whether a claim is charged at its own key, or is about to be."""
        alone = owning_pod(claim) is None or claim.metadata.uid in self._sent
        return alone or self._source.has_own_entry(claim)

    def charge_alone(self, claim: ResourceClaim) -> None:
        """Charge a claim at its own key from now on, although a pod controls it."""
        self._sent.add(claim.metadata.uid)

    def _set(self, claim: ResourceClaim) -> None:
        meta = claim.metadata
        self._remove(meta.uid)
        self._claims[meta.uid] = claim
        self._by_name[meta.namespace, meta.name] = meta.uid
        owner = owning_pod(claim)
        if owner is not None:
            self._by_owner.setdefault(owner.uid, {})[meta.uid] = None

    def _remove(self, uid: str) -> None:
        claim = self._claims.pop(uid, None)
        if claim is None:
            return
        place = claim.metadata.namespace, claim.metadata.name
        if self._by_name.get(place) == uid:
            del self._by_name[place]
        owner = owning_pod(claim)
        owned = self._by_owner.get(owner.uid) if owner is not None else None
        if owner is not None and owned is not None:
            owned.pop(uid, None)
            if not owned:
                del self._by_owner[owner.uid]
