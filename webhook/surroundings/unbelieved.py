"""Users that make objects for controllers and are not known as a controller.

What such a user makes counts beside its root, so that no user draws from an envelope by writing an
ownerReference. If the user is the controller, under a name that was not expected, each of its
objects is charged twice; so the names are kept here, for readiness and a metric.
"""

import asyncio
from typing import Final

from ledger.kube.containers import shown

IDENTITIES_MAX: Final = 16
"""Names that are kept: any user may write an ownerReference, so the rarest makes room."""

KEPT_SECONDS: Final = 3_600.0
"""How long a name is kept after its last object."""


class Unbelieved:
    """The users that were not believed lately, by the kind that they acted for."""

    def __init__(self) -> None:
        self._seen: dict[tuple[str, str], tuple[int, float]] = {}

    def note(self, kind: str, username: str) -> None:
        """Note that a user has made an object that an object of a kind owns."""
        self._forget()
        found = self._seen.pop((kind, username), (0, 0.0))[0] + 1
        if len(self._seen) >= IDENTITIES_MAX:
            del self._seen[min(self._seen, key=lambda one: self._seen[one])]
        self._seen[kind, username] = found, asyncio.get_running_loop().time()

    def __len__(self) -> int:
        """Return how many pairs of kind and user are kept."""
        self._forget()
        return len(self._seen)

    def problems(self) -> list[str]:
        """Return who was not believed, and the setting that would have it believed."""
        self._forget()
        return [
            f"{shown(user)} made {count} objects that {kind} own and is not known to act for them,"
            f" so these count beside their owners: if it is the controller, add {kind}={user} to"
            " controller_identities; if not, it writes ownerReferences of its own"
            for (kind, user), (count, _) in sorted(self._seen.items())
        ]

    def _forget(self) -> None:
        if not self._seen:
            return
        oldest = asyncio.get_running_loop().time() - KEPT_SECONDS
        for one in [one for one, (_, last) in self._seen.items() if last < oldest]:
            del self._seen[one]
