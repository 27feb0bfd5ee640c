"""Unrecognized controllers: users that make objects for controllers and are not configured as one.

An object of such a user counts beside its root, so that no user draws from an envelope by writing
an ownerReference. If the user is the controller, under a name that was not expected, each of its
objects is charged twice; so the names are kept here, for readiness and a metric. Any user may write
an ownerReference, so the memory is bounded and the rarest makes room.
"""

from ledger.kube.api.quoting import shown
from webhook.context.recent_counts import RecentCounts


class UnrecognizedControllers:
    """The users that were not recognized in the last hour, by the kind that they acted for."""

    def __init__(self) -> None:
        self._seen: RecentCounts[tuple[str, str]] = RecentCounts()

    def note(self, kind: str, username: str) -> None:
        """Note that a user has made an object that an object of a kind owns."""
        self._seen.count((kind, username))

    def __len__(self) -> int:
        """Return how many pairs of kind and user are kept."""
        return len(self._seen)

    def problems(self) -> list[str]:
        """Return the users, each with the setting that would recognize it."""
        return [
            f"{shown(user)} made {count} objects that {kind} own and is not known to act for them,"
            f" so these count beside their owners: if it is the controller, add {kind}={user} to"
            " controller_identities; if not, it writes ownerReferences of its own"
            for (kind, user), count in sorted(self._seen.counts())
        ]
