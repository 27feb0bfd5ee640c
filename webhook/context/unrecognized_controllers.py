"""Unrecognized controllers: users that create objects for a kind whose controllers they are not.

An object of such a user is charged beside its root, so that no user draws from an envelope by
writing an ownerReference. If the user is in fact the controller, under an unexpected name, its
objects are charged twice. So readiness and a metric report these users. Any user may write an
ownerReference, so the memory is bounded.
"""

from ledger.kube.api.quoting import shown
from webhook.context.expiring_counter import ExpiringCounter


class UnrecognizedControllers:
    """The users that were not recognized in the last hour, by the kind of the controller."""

    def __init__(self) -> None:
        self._seen: ExpiringCounter[tuple[str, str]] = ExpiringCounter()

    def note(self, kind: str, username: str) -> None:
        """Record that a user has created an object that an object of this kind controls."""
        self._seen.count((kind, username))

    def __len__(self) -> int:
        """Return the number of pairs of kind and user."""
        return len(self._seen)

    def problems(self) -> list[str]:
        """Return a line for each user, with the setting that makes it recognized."""
        return [
            f"{shown(user)} made {count} objects that {kind} own and is not known to act for them,"
            f" so these count beside their owners: if it is the controller, add {kind}={user} to"
            " controller_identities; if not, it writes ownerReferences of its own"
            for (kind, user), count in sorted(self._seen.counts())
        ]
