"""Registered cluster ledger: admission and extender are denied before the cluster's registration.

It denies every command as unavailable until the name of the cluster is registered, because a
service with the name of another cluster would charge the namespaces of that cluster. Settlement
needs no such check, because settlement registers the cluster.
"""

from collections.abc import Awaitable, Callable

from ledger.core.model.commands import AnyCommand
from ledger.core.model.denials import Denial
from ledger.log import system_denials
from ledger.log.ledger_port import Accepted, Ledger, answered


class RegisteredClusterLedger:
    """Passes commands on once the name of the cluster is registered; denies them before."""

    def __init__(self, ledger: Ledger, cluster: str, *, is_registered: Callable[[], bool]) -> None:
        """Decorate `ledger` for the cluster of this name."""
        self._ledger = ledger
        self._cluster = cluster
        self._is_registered = is_registered

    def submit(self, command: AnyCommand, *, dry_run: bool = False) -> Awaitable[Accepted | Denial]:
        """Decide a command; see `Ledger.submit`."""
        if not self._is_registered():
            return answered(
                system_denials.unavailable(
                    f"it is not confirmed yet that {self._cluster} is the name of this cluster"
                )
            )
        return self._ledger.submit(command, dry_run=dry_run)
