"""The projector: follows the log and the denials, and keeps the projection file up to date.

It verifies positions, hashes, chain and balances. If the last record of the file is not in the log,
the log has lost or changed records, and the projector stops.
"""

import asyncio
import sqlite3
from collections.abc import Callable, Sequence
from typing import Final

from ledger.core.model.state import State
from ledger.log import records
from ledger.log.log_port import Log, LogEntry, Lost
from ledger.log.records import Record
from ledger.log.recovery.replay import state_at
from projections.projector import denial_projector
from projections.record_changes import fold_record
from projections.store.store_writer import ProjectionHead, Store
from projections.tables.account_tables import AccountTables
from projections.tables.balance_table import BalanceTable
from projections.tables.card_table import CardTable
from projections.tables.charge_rows import last_charge
from projections.tables.charge_table import ChargeTable
from projections.tables.drift_table import DriftTable
from projections.tables.envelope_draw_table import DrawTable
from projections.tables.event_tables import HistoryTables
from projections.tables.interned_values import InternedValues
from projections.tables.name_numbers import NameNumbers
from projections.tables.placement_table import PlacementTable
from projections.tables.table_protocol import Table

EVENTS_PER_TRANSACTION: Final = 65_536
"""A transaction ends with the record that reaches this number of events, or with its batch.

While the projection is behind the log, a transaction goes on over several batches.
"""

Progress = Callable[[int, int], None]
"""Called with `(position, last)` after each batch is stored; `last` is the log's end as known."""


async def run(log: Log, store: Store, *, on_progress: Progress | None = None) -> None:
    """Bring the file up to date with the log, and follow the log until cancelled.

    Raises Lost when log and file contradict each other, NewerSchema and Unreachable.
    """
    projector = await Projector.resume(log, store)
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(_follow(projector, log, on_progress))
        tasks.create_task(denial_projector.follow(log, store))


async def replay(
    log: Log, store: Store, last: int | None = None, *, on_progress: Progress | None = None
) -> ProjectionHead:
    """Bring the file up to a position of the log, its end when None, and return the head of the
    file.

    Raises Lost, NewerSchema and Unreachable.
    """
    extent = await log.extent()
    last = extent.last if last is None else last
    if last > extent.last:
        raise Lost(f"position {last} is not in the log, which ends at {extent.last}")
    projector = await Projector.resume(log, store)
    if projector.position < last:
        async for batch in log.read(projector.position + 1, last):
            await projector.project(batch, known=last)
            if on_progress is not None:
                on_progress(projector.position, last)
    await projector.finish()
    return await store.head()


class Projector:
    """Folds records on the state at a position and writes their changes."""

    def __init__(
        self,
        store: Store,
        *,
        state: State,
        names: NameNumbers,
        values: InternedValues,
        charges: int,
    ) -> None:
        """Continue after the file's last charge row, numbered `charges`."""
        self._store = store
        self._state = state
        self._stored = state.position
        self._waiting = 0
        self._callbacks: list[Callable[[Record], None]] = []
        self._names, self._values = names, values
        self._charges = ChargeTable(
            names,
            values=values,
            state=state,
            last=charges,
            keeps_open=store.scratch and not state.position,
        )
        self._tables: tuple[Table, ...] = (
            HistoryTables(names),
            AccountTables(names),
            self._charges,
            DrawTable(names),
            CardTable(names),
            PlacementTable(names),
            DriftTable(names),
            BalanceTable(names, state),
        )

    @classmethod
    async def resume(cls, log: Log, store: Store) -> "Projector":
        """Return a projector at the file's position.

        Raises Lost when the file's last record differs from that of the log, and the errors of
        `state_at`.
        """
        head = await store.head()
        await witness(log, head, str(store.path))
        state = await state_at(log, head.position)
        names = await store.write(NameNumbers.load)
        values = await store.write(InternedValues.load)
        charges = await store.write(last_charge)
        return cls(store, state=state, names=names, values=values, charges=charges)

    @property
    def position(self) -> int:
        """The position of the last record that is stored."""
        return self._stored

    @property
    def state(self) -> State:
        """The state after the last folded record, which may not be stored yet; to be read only."""
        return self._state

    def subscribe(self, callback: Callable[[Record], None]) -> None:
        """Call `callback` after every record that is folded from now on."""
        self._callbacks.append(callback)

    async def project(self, entries: Sequence[LogEntry], *, known: int = 0) -> int:
        """Fold the entries that follow, store their changes, and return the number of events.

        `known` is a position that the log has reached. Changes before it may wait for a later call,
        so that a transaction is large while the projection is behind.
        """
        events = 0
        for entry in entries:
            change = fold_record(self._state, entry.position, entry.payload)
            for table in self._tables:
                table.collect(change)
            for callback in self._callbacks:
                callback(change.record)
            self._waiting += len(change.record.items) + 1
            events += len(change.record.items)
            if self._waiting >= EVENTS_PER_TRANSACTION:
                await self._write()
        if self._waiting and self._state.position >= known:
            await self._write()
        return events

    async def finish(self) -> None:
        """Write the rows that a scratch file has only in memory until it is complete."""
        if self._charges.keeps_open:
            self._charges.keeps_open = False
            await self._write()

    async def _write(self) -> None:
        await self._store.write(self._write_tables)
        self._stored, self._waiting = self._state.position, 0

    def _write_tables(self, connection: sqlite3.Connection) -> None:
        """Write all collected rows: records and their changes in one transaction."""
        self._names.write(connection)
        self._values.write(connection)
        for table in self._tables:
            table.write(connection)


async def witness(log: Log, head: ProjectionHead, source: str) -> None:
    """Check that the last record of a projection is in the log. Raises Lost."""
    if head.position == 0:
        return
    extent = await log.extent()
    payload = await log.get(head.position) if head.position <= extent.last else None
    if payload is None:
        raise Lost(
            f"the log ends at position {extent.last}, but {source} has seen position"
            f" {head.position}: acknowledged records are missing. If this is meant to be another"
            " log, delete that file"
        )
    if records.decode(payload)[1] != head.hash:
        raise Lost(
            f"position {head.position} of the log is not the record that {source} has seen:"
            " the log was changed. If this is meant to be another log, delete that file"
        )


async def _follow(projector: Projector, log: Log, on_progress: Progress | None) -> None:
    last = (await log.extent()).last
    async for batch in log.follow(projector.position + 1):
        await projector.project(batch, known=last)
        last = max(last, projector.position)
        if on_progress is not None:
            on_progress(projector.position, last)
