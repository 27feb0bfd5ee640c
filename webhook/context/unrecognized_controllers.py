"""Unrecognized controllers: users that create objects for a kind whose controllers they are not.

An object of such a user is charged beside its root, and a resource claim by itself, so that no user
draws from a charge by writing an ownerReference. If the user is in fact the controller, under an
unexpected name, its objects are charged in addition to the envelope. So readiness and a metric
report these users. Any user may write an ownerReference, so the memory is bounded.
"""

from ledger.kube.api.quoting import shown
from webhook.context.expiring_counter import ExpiringCounter


class UnrecognizedControllers:
    """The users that were not recognized in the last hour, by the kind of the controller."""

    def __init__(self) -> None:
        self._seen: ExpiringCounter[tuple[str, str]] = ExpiringCounter()
        self._of_claims: ExpiringCounter[tuple[str, str]] = ExpiringCounter()

    def note(self, kind: str, username: str) -> None:
        """Record that a user has created an object that an object of this kind controls."""
        self._seen.count((kind, username))

    def note_claim(self, setting: str, username: str) -> None:
        """Record that a user has created a resource claim of a pod; the setting lists who may."""
        self._of_claims.count((setting, username))

    def __len__(self) -> int:
        """Return the number of pairs of a user with a kind, or with a setting for claims."""
        return len(self._seen) + len(self._of_claims)

    def problems(self) -> list[str]:
        """Return a line for each user, with the setting that makes it recognized."""
        return [
            f"{shown(user)} made {count} objects that {kind} own and is not known to act for them,"
            f" so these count beside their owners: if it is the controller, add {kind}={user} to"
            " controller_identities; if not, it writes ownerReferences of its own"
            for (kind, user), count in sorted(self._seen.counts())
        ] + [
            f"{shown(user)} made {count} resource claims that pods own and is not in {setting}, so"
            " these count by themselves, beside the workloads of their pods: if it makes the claims"
            f" of pods, add it to {setting}; if not, it writes ownerReferences of its own"
            for (setting, user), count in sorted(self._of_claims.counts())
        ]
