"""Ledger decorators: the ledgers around one writer, and how they are nested.

Each of them is a `Ledger` that adds one property to the `Ledger` behind it. Outermost first:

1. One of two, depending on the caller. Both decorate the replica, neither the other:
   * `RegisteredClusterLedger`, for admission and the extender, denies every command as unavailable
     until the name of the cluster is registered, because a service with the name of another
     cluster would charge the namespaces of that cluster.
   * `ReadYourWritesLedger`, for settlement, returns an answer only after this replica has applied
     it, because settlement derives its next command from the state of this replica. It is outside
     forwarding, because the answer of another replica is ahead of the state here.
2. `LedgerReplica` (`replica.py`) denies commands as unavailable while the log is not open, and as
   stopped after the log was lost. There is one for the whole life of the process.
3. `ForwardingLedger` (`ledger/log/peers/forwarding.py`) sends a command to the preferred writer, or
   passes it on where that writer does not answer. The replica makes it when the log is open.
4. `Writer` (`ledger/log/writer/writer.py`) decides and appends.

Admission needs no read-your-writes: it answers from the denial or acceptance alone. Settlement
needs no check of the registration: it is the one that registers the cluster.
"""

import asyncio
from collections.abc import Callable
from typing import Final, NamedTuple, Protocol

from ledger.core.model.commands import AnyCommand
from ledger.core.model.denials import Denial
from ledger.log import system_denials
from ledger.log.ledger import Accepted, Ledger, StateView
from ledger.log.records import Record

APPLIED_SECONDS: Final = 10.0
"""How long an answer may wait until this replica has applied it; the caller then asks again."""


class RegisteredClusterLedger:
    """Passes commands on once the name of the cluster is registered; denies them before."""

    def __init__(self, ledger: Ledger, cluster: str, *, is_registered: Callable[[], bool]) -> None:
        """Decorate `ledger` for the cluster of this name."""
        self._ledger = ledger
        self._cluster = cluster
        self._is_registered = is_registered

    async def submit(self, command: AnyCommand, *, dry_run: bool = False) -> Accepted | Denial:
        """Decide a command; see `Ledger.submit`."""
        if not self._is_registered():
            return system_denials.unavailable(
                f"it is not confirmed yet that {self._cluster} is the name of this cluster"
            )
        return await self._ledger.submit(command, dry_run=dry_run)


class ReadYourWritesLedger:
    """Returns an answer when `view` has applied it.

    The preferred writer may be another replica, whose records this one applies a moment later.
    Until then, a deletion would look like that of an object without a charge.
    """

    def __init__(self, ledger: Ledger, view: StateView) -> None:
        """Decorate `ledger` for a reader of `view`."""
        self._ledger = ledger
        self._view = view
        self._applied = asyncio.Event()
        view.subscribe(self._on_record)

    async def submit(self, command: AnyCommand, *, dry_run: bool = False) -> Accepted | Denial:
        """Decide a command; see `Ledger.submit`.

        Denied as unavailable, though accepted, where this replica has not applied it after
        `APPLIED_SECONDS`: the same command again gets the same answer.
        """
        answer = await self._ledger.submit(command, dry_run=dry_run)
        if isinstance(answer, Denial):
            return answer
        try:
            async with asyncio.timeout(APPLIED_SECONDS):
                await self._wait_for(answer.position)
        except TimeoutError:
            return system_denials.unavailable(
                f"position {answer.position} holds, but this replica has not applied it within"
                f" {APPLIED_SECONDS:g} s"
            )
        return answer

    async def _wait_for(self, position: int) -> None:
        while self._view.state.position < position:
            self._applied.clear()
            await self._applied.wait()

    def _on_record(self, record: Record) -> None:
        self._applied.set()


class Replica(Ledger, StateView, Protocol):
    """A ledger with the state that it has applied; `LedgerReplica` is one."""


class DecoratedLedgers(NamedTuple):
    """The two outermost ledgers of a cluster."""

    admission: RegisteredClusterLedger
    settlement: ReadYourWritesLedger


def decorated(
    replica: Replica, cluster: str, *, is_registered: Callable[[], bool]
) -> DecoratedLedgers:
    """Return the ledgers of a cluster around a replica's, in the order of this module's page."""
    return DecoratedLedgers(
        admission=RegisteredClusterLedger(replica, cluster, is_registered=is_registered),
        settlement=ReadYourWritesLedger(replica, replica),
    )
