"""Past ledger: the state of the ledger at a moment, for queries and dry runs, never written."""

from collections.abc import Callable
from datetime import datetime

from gpuledger.cli.exit_codes import CommandError, Exit
from gpuledger.cli.output import announce
from gpuledger.cli.progress import bar
from gpuledger.storage.open_log import open_log
from gpuledger.storage.time_ranges import moment_at
from ledger.core.decide.decider import decide
from ledger.core.model.commands import AnyCommand
from ledger.core.model.denials import Denial
from ledger.core.model.state import State
from ledger.log import records
from ledger.log.ledger_port import Accepted
from ledger.log.log_port import Log, Lost
from ledger.log.records import Record
from ledger.log.recovery.replay import state_at
from ledger.runtime.settings.settings import Settings
from projections.queries.moments import Moment, microseconds


class PastLedger:
    """A ledger that decides on a state that never changes."""

    def __init__(self, state: State) -> None:
        """Decide on this state."""
        self.state = state

    def subscribe(self, callback: Callable[[Record], None]) -> None:
        """Do nothing: no record will follow."""

    async def submit(self, command: AnyCommand, *, dry_run: bool = False) -> Accepted | Denial:
        """Decide a command; only a dry run is permitted."""
        assert dry_run, "a past state cannot be changed"
        decision = decide(self.state, command)
        if isinstance(decision, Denial):
            return decision
        return Accepted(self.state.position, "", bool(decision))


async def ledger_at(settings: Settings, at: str) -> PastLedger:
    """Return the ledger at a moment, at its end if `at` is empty, and print the position.

    Raises CommandError, and what finding and reading the log raises.
    """
    moment = moment_at(at)
    async with open_log(settings) as opened:
        last = (await opened.log.extent()).last
        position = await position_of(opened.log, moment, last)
        with bar("reading the log") as progress:
            state = await state_at(opened.log, position, on_progress=progress)
    announce(position, last)
    return PastLedger(state)


async def position_of(log: Log, moment: Moment | None, last: int) -> int:
    """Return the last position at a moment, of a log that ends at `last`. Raises CommandError,
    Lost."""
    if moment is None:
        return last
    if isinstance(moment, datetime):
        return await _last_until(log, microseconds(moment), last)
    if moment > last:
        raise CommandError(
            Exit.NOT_FOUND, f"position {moment} is not in the log, the last one is {last}"
        )
    return moment


async def _last_until(log: Log, time: int, last: int) -> int:
    """Return the last position whose record is not later than a time in µs of Unix time.

    The times of records never decrease, so a binary search finds it.
    """
    low, high = 0, last
    while low < high:
        middle = (low + high + 1) // 2
        payload = await log.get(middle)
        if payload is None:
            raise Lost(f"position {middle} is missing from the log")
        if records.decode(payload)[0].time <= time:
            low = middle
        else:
            high = middle - 1
    return low
