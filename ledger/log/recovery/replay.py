"""Opening: from a stored log to a verified state, by the newest usable snapshot and the tail.

Whatever does not fit together raises `Lost` and stops: a log behind a witness, a record that was
changed, a snapshot of a log that is not this one.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import Final

from ledger.core import snapshots
from ledger.core.model.state import State
from ledger.log import records
from ledger.log.log_port import Log, Lost, Snapshot
from ledger.log.recovery.head_witness import LogHead
from ledger.log.recovery.scrub import scrub

SCRUBBED_AT_ONCE: Final = 5_000
"""A log of up to this many records is scrubbed before it is used; a longer one while it is."""

Progress = Callable[[int, int], None]
"""Called with `(position, last)` while a log is replayed."""


async def open_state(
    log: Log, *, witnesses: Sequence[LogHead] = (), on_progress: Progress | None = None
) -> State:
    """Return the state at the log's end.

    Raises Lost, records.NewerSchema, Unreachable.
    """
    # Before the extent: a replica that is writing may save a snapshot of a newer record meanwhile.
    stored = await log.load_snapshots()
    extent = await log.extent()
    for witness in witnesses:
        if witness.position > extent.last:
            raise Lost(
                f"the log ends at position {extent.last}, but {witness.source} has seen position"
                f" {witness.position}: acknowledged records are missing. Restore the log from a"
                " backup or a mirror; see docs/how-to/operating.md"
            )
    if 0 < extent.last <= SCRUBBED_AT_ONCE:
        await scrub(log, extent.last)
    state = await _from_snapshot(log, stored, extent.last)
    for witness in witnesses:
        await _check(log, witness)
    await catch_up(log, state, extent.last, on_progress=on_progress)
    return state


async def catch_up(
    log: Log,
    state: State,
    last: int,
    *,
    on_progress: Progress | None = None,
    on_record: Callable[[records.Record], None] | None = None,
) -> None:
    """Fold the records after the state's position up to `last`, yielding to the loop."""
    if state.position >= last:
        return
    async for batch in log.read(state.position + 1, last):
        for entry in batch:
            record = records.fold(state, entry.position, entry.payload)
            if on_record is not None:
                on_record(record)
            if on_progress is not None:
                on_progress(state.position, last)
        await asyncio.sleep(0)
    if state.position != last:
        raise Lost(f"the log ended at position {state.position} while {last} was announced")


async def _from_snapshot(log: Log, stored: Sequence[Snapshot], last: int) -> State:
    """Return the newest stored state that belongs to this log, or the empty one."""
    for snapshot in stored:
        try:
            state = snapshots.decode(snapshot.payload)
        except snapshots.InvalidSnapshot:
            continue
        head = LogHead(state.position, state.hash.hex(), "a stored snapshot")
        if state.position > last:
            raise Lost(
                f"the log ends at position {last}, but a snapshot of position"
                f" {state.position} exists: acknowledged records are missing"
            )
        await _check(log, head)
        return state
    return State()


async def is_there(log: Log, witness: LogHead) -> bool:
    """Return whether the log holds a witnessed record; False when it holds none at its position.

    Raises Lost when it holds another one there.
    """
    if witness.position == 0:
        return True
    payload = await log.get(witness.position)
    if payload is None:
        return False
    _, digest = records.decode(payload)
    if digest.hex() != witness.hash:
        raise Lost(
            f"position {witness.position} holds another record than {witness.source} has seen:"
            " this is not the same log"
        )
    return True


async def _check(log: Log, witness: LogHead) -> None:
    """Compare a witnessed hash with the record at its position. Raises Lost."""
    if not await is_there(log, witness):
        raise Lost(f"position {witness.position}, known from {witness.source}, is missing")
