"""Unused claims: resource claims without any use that still take room of a quota.

Such a claim has no owner, no pod and no device. Some components make claims and leave them behind
when the pod is refused.
"""

from collections.abc import Callable
from itertools import islice
from typing import Final

from ledger.kube.resource_claims.dra_objects import ResourceClaim

UNUSED_SECONDS: Final = 24 * 3600.0
"""Age at which an unused claim is reported."""

NAMED_MAX: Final = 3
"""Unused claims that the warnings name."""

_MICROSECONDS: Final = 1_000_000


class UnusedClaims:
    """The unused claims of one session, with the time since when they are unused."""

    def __init__(self, is_charged: Callable[[ResourceClaim], bool]) -> None:
        """`is_charged` returns whether a claim takes room at its own key."""
        self._is_charged = is_charged
        self._since: dict[str, tuple[float, ResourceClaim]] = {}

    def note(self, claim: ResourceClaim, now: int, *, first: bool) -> None:
        """Take note of a claim at `now`, in µs of Unix time.

        A claim that is unused when it is seen for the `first` time counts from its creation.
        """
        uid = claim.metadata.uid
        if _is_used(claim):
            self._since.pop(uid, None)
        elif uid in self._since:
            self._since[uid] = self._since[uid][0], claim
        else:
            created = claim.metadata.creation_timestamp
            since = created.timestamp() if first and created is not None else now / _MICROSECONDS
            self._since[uid] = since, claim

    def forget(self, uid: str) -> None:
        """Forget a claim that is deleted."""
        self._since.pop(uid, None)

    def keep(self, uids: set[str]) -> None:
        """Forget all claims but these."""
        self._since = {uid: item for uid, item in self._since.items() if uid in uids}

    def due(self, now: int) -> list[tuple[float, ResourceClaim]]:
        """Return the age in seconds of each reported claim and the claim, the oldest first."""
        seconds = now / _MICROSECONDS
        ages = ((seconds - since, claim) for since, claim in self._since.values())
        due = [
            (age, claim) for age, claim in ages if age >= UNUSED_SECONDS and self._is_charged(claim)
        ]
        return sorted(due, key=lambda item: (-item[0], item[1].metadata.full_name()))

    def warnings(self, now: int) -> list[str]:
        """Return a line for each of the first claims, and how many more there are."""
        due = self.due(now)
        lines = [
            f"resource claim {claim.metadata.full_name()}: no pod has used it for"
            f" {age / 3600:.0f} h and it takes room of the quotas; delete it if it was left behind"
            for age, claim in islice(due, NAMED_MAX)
        ]
        more = len(due) - len(lines)
        return [*lines, f"{more} more resource claims are unused"] if more else lines


def _is_used(claim: ResourceClaim) -> bool:
    """Return whether a claim has an owner, a pod or a device."""
    status = claim.status
    return bool(
        claim.metadata.owner_references or status.reserved_for or status.allocation is not None
    )
