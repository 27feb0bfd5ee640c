"""A ledger that decides about a cluster only once its name is known to be this cluster's.

A service that was told the name of another cluster would charge that one's namespaces until
registration ends it.
"""

import asyncio

from ledger.core.model.commands import AnyCommand
from ledger.core.model.denials import Denial
from ledger.log import system_denials
from ledger.log.ledger import Accepted, Ledger


class Confirmed:
    """A `Ledger` in front of another; until `registered` is set, it is unavailable."""

    def __init__(self, ledger: Ledger, registered: asyncio.Event, cluster: str) -> None:
        """Ask `ledger`, for the cluster of a name."""
        self._ledger = ledger
        self._registered = registered
        self._cluster = cluster

    async def submit(self, command: AnyCommand, *, dry_run: bool = False) -> Accepted | Denial:
        """Decide a command; see `Ledger.submit`."""
        if not self._registered.is_set():
            return system_denials.unavailable(
                f"it is not confirmed yet that {self._cluster} is the name of this cluster"
            )
        return await self._ledger.submit(command, dry_run=dry_run)
