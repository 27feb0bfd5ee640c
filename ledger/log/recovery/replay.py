"""Replay: a verified state from a stored log, at its end or at an earlier position.

A replay begins with the newest usable snapshot and folds the records after it.

Every contradiction raises `Lost`: a log that ends before a witness, a changed record, a snapshot of
another log. The checks against witnesses stand in `log_end_check`.
"""

import asyncio
import gc
from collections.abc import Callable, Iterator, Sequence
from contextlib import aclosing, contextmanager
from typing import Final

import structlog

from ledger.core import snapshot_format
from ledger.core.model.state import State
from ledger.log import records
from ledger.log.log_port import Log, Lost
from ledger.log.recovery import log_end_check
from ledger.log.recovery.log_end_check import LogHead
from ledger.log.recovery.scrub import scrub

SCRUBBED_AT_ONCE: Final = 5_000
"""A log of up to this many records is scrubbed before it is used; a longer one while it is."""

Progress = Callable[[int, int], None]
"""Called with `(position, last)` while a log is replayed."""

_log: Final = structlog.get_logger("ledger.log")


async def open_state(
    log: Log, *, witnesses: Sequence[LogHead] = (), on_progress: Progress | None = None
) -> State:
    """Return the state at the log's end.

    Raises Lost, records.NewerSchema, Unreachable.
    """
    # Before the extent: a replica that is writing may save a snapshot of a newer record meanwhile.
    stored = await _newest_state(log)
    extent = await log.extent()
    log_end_check.check_length(witnesses, extent.last)
    if 0 < extent.last <= SCRUBBED_AT_ONCE:
        await scrub(log, extent.last)
    state = await _from_snapshot(log, stored, extent.last)
    for witness in witnesses:
        await log_end_check.check_record(log, witness)
    await catch_up(log, state, extent.last, on_progress=on_progress)
    return state


async def state_at(log: Log, position: int, *, on_progress: Progress | None = None) -> State:
    """Return the state at a position that the log has reached.

    Raises Lost, NewerSchema and Unreachable.
    """
    state = await _from_older_snapshot(log, position)
    await catch_up(log, state, position, on_progress=on_progress)
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


async def _newest_state(log: Log, position: int | None = None) -> State | None:
    """Return the newest usable stored state, at most that of a position; None without one."""
    async with aclosing(log.load_snapshots()) as stored:
        async for snapshot in stored:
            if position is not None and snapshot.position > position:
                continue
            try:
                with _no_collection():
                    return snapshot_format.decode(snapshot.payload)
            except snapshot_format.InvalidSnapshot as error:
                _log.warning("snapshot_refused", position=snapshot.position, reason=str(error))
    return None


@contextmanager
def _no_collection() -> Iterator[None]:
    """Collect no garbage, because a state that is being read is all in use."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


async def _from_snapshot(log: Log, state: State | None, last: int) -> State:
    """Check that a stored state belongs to this log; return it, or the empty state."""
    if state is None:
        return State()
    head = LogHead(state.position, state.hash.hex(), "a stored snapshot")
    if state.position > last:
        raise Lost(
            f"the log ends at position {last}, but a snapshot of position"
            f" {state.position} exists: acknowledged records are missing"
        )
    if state.position:
        state.schema = records.schema_of(await log_end_check.checked_record(log, head))
    return state


async def _from_older_snapshot(log: Log, position: int) -> State:
    """Return the newest usable state that is stored up to a position, or the empty one."""
    state = await _newest_state(log, position)
    if state is not None:
        payload = await log.get(state.position)
        if payload is not None and records.decode(payload)[1] == state.hash:
            state.schema = records.schema_of(payload)
            return state
    return State()
