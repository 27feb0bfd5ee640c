"""Log verification: positions, hashes, chain, balances, snapshots and end of the log are checked.

The verification reads the log from its first record to its last and needs no projection.
"""

from collections.abc import Callable
from typing import Final

import msgspec

from ledger.core import snapshot_format
from ledger.core.model.state import State
from ledger.log import records
from ledger.log.log_port import Log, Lost, Snapshot
from ledger.log.records import NewerSchema

Progress = Callable[[int, int], None]
"""Called with `(position, last)` while the log is read."""


class AuditReport(msgspec.Struct, frozen=True):
    """The result of `verify`: the log is intact up to `records` and `position`."""

    ok: bool
    records: int
    position: int
    problem: str | None = None


class ExpectedHead(msgspec.Struct, frozen=True):
    """A head stored elsewhere: the record at `position` must have this hash (hexadecimal)."""

    position: int
    hash: str

    @classmethod
    def parse(cls, text: str) -> "ExpectedHead":
        """Read `POSITION:HASH`. Raises ValueError naming the text."""
        position, colon, digest = text.partition(":")
        if not (
            colon and position.isascii() and position.isdigit() and len(digest) == _HASH_DIGITS
        ):
            raise ValueError(f"{text!r} is not POSITION:HASH with a hash of {_HASH_DIGITS} digits")
        return cls(int(position), digest.lower())


_HASH_DIGITS: Final = 64


async def verify(
    log: Log,
    expect: ExpectedHead | None = None,
    *,
    check_snapshots: bool = True,
    on_progress: Progress | None = None,
) -> AuditReport:
    """Replay the whole log and report the first problem, if any.

    Checks that positions have no gap, the hash of every record, the chain and every balance, that
    stored snapshots equal the replayed state, and that `expect` is in the log. Raises Unreachable.
    """
    state = State()
    try:
        await _verify(log, state, expect, check_snapshots, on_progress)
    except (Lost, NewerSchema) as error:
        return AuditReport(False, state.position, state.position, str(error))
    return AuditReport(True, state.position, state.position)


async def _verify(
    log: Log,
    state: State,
    expect: ExpectedHead | None,
    check_snapshots: bool,
    on_progress: Progress | None,
) -> None:
    extent = await log.extent()
    if extent.last and extent.first != 1:
        raise Lost(f"the log begins at position {extent.first}: the records before are missing")
    stored = [kept async for kept in log.load_snapshots()] if check_snapshots else []
    _compare(state, stored, expect)
    if extent.last:
        async for batch in log.read(1, extent.last):
            for entry in batch:
                records.fold(state, entry.position, entry.payload)
                _compare(state, stored, expect)
            if on_progress is not None:
                on_progress(state.position, extent.last)
    if state.position != extent.last:
        raise Lost(f"the log ended at position {state.position}, {extent.last} was announced")
    # Last, because an error within the log explains more than a missing end.
    _must_reach(extent.last, stored, expect)


def _must_reach(last: int, stored: list[Snapshot], expect: ExpectedHead | None) -> None:
    """Raise Lost when the log ends before a position that a snapshot or a witness has."""
    if expect is not None and expect.position > last:
        raise Lost(
            f"the log ends at position {last}, but position {expect.position} was seen:"
            " its tail is missing"
        )
    for snapshot in stored:
        if snapshot.position > last:
            raise Lost(
                f"the log ends at position {last}, but there is a snapshot of position"
                f" {snapshot.position}: its tail is missing"
            )


def _compare(state: State, stored: list[Snapshot], expect: ExpectedHead | None) -> None:
    """Compare a replayed state with stored snapshots and an expected head. Raises Lost."""
    position = state.position
    if expect is not None and expect.position == position and expect.hash != state.hash.hex():
        raise Lost(
            f"position {position}: the record's hash is {state.hash.hex()}, {expect.hash} was"
            " expected: this is another log, or its history was rewritten"
        )
    for snapshot in stored:
        if snapshot.position == position and not _is_of(state, snapshot.payload):
            raise Lost(f"position {position}: the stored snapshot differs from what a replay gives")


def _is_of(state: State, payload: bytes) -> bool:
    """Return whether a snapshot has this state. One of an older schema is compared when read."""
    encoded = snapshot_format.encode(state)
    if encoded == payload:
        return True
    try:
        stored = snapshot_format.decode(payload)
    except snapshot_format.InvalidSnapshot:
        return False
    return snapshot_format.encode(stored) == encoded
