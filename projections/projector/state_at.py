"""The state at a position: from the newest usable snapshot and the records after it."""

from ledger.core import snapshot_format
from ledger.core.model.state import State
from ledger.log import records
from ledger.log.log_port import Log
from ledger.log.recovery.replay import Progress, catch_up


async def state_at(log: Log, position: int, *, on_progress: Progress | None = None) -> State:
    """Return the state at a position that the log has reached.

    Raises Lost, NewerSchema and Unreachable.
    """
    state = await _from_snapshot(log, position)
    await catch_up(log, state, position, on_progress=on_progress)
    return state


async def _from_snapshot(log: Log, position: int) -> State:
    """Return the newest stored state up to a position, if it belongs to this log, else an empty
    state.
    """
    for snapshot in await log.load_snapshots():
        if snapshot.position > position:
            continue
        try:
            state = snapshot_format.decode(snapshot.payload)
        except snapshot_format.InvalidSnapshot:
            continue
        payload = await log.get(state.position)
        if payload is not None and records.decode(payload)[1] == state.hash:
            return state
    return State()
