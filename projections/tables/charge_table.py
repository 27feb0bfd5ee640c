"""The tables of charges: the holds and objects that each key is charged for, as intervals."""

import sqlite3
from typing import Final

import msgspec

from ledger.core.model.events import OBJECT
from ledger.core.model.state import Entry, Hold, Object, State
from ledger.core.model.traits import READ, recorded_up_to
from projections.record_changes import RecordChange
from projections.store.row_inserts import Cell
from projections.tables.charge_rows import (
    ChargeRows,
    ClosedRow,
    Closing,
    OpenRow,
    RowKey,
    closed_row,
)
from projections.tables.interned_values import InternedValues
from projections.tables.name_numbers import NameNumbers

COMMITTED: Final = "committed"
"""The hold ended because its object was observed."""
RAISED: Final = "raised"
"""The hold continues in the next row, with a larger demand or with the demand of its cards."""
UPDATED: Final = "updated"
"""The object continues in the next row, at a newer version or with the demand of its cards."""

_encode: Final = msgspec.msgpack.Encoder(order="deterministic").encode

_UNKNOWN: Final[tuple[tuple[int, ...], object]] = ((), None)

NumberedKey = tuple[int, str, str]
"""Number and name of a namespace, and a key in it."""

_NOTHING_HELD: Final = Entry(None, (), {})


class ChargeTable:
    """The tables `charges`, `charges_open` and `charges_closed`.

    Rows are written in the order of opening, for any size of the transactions. A row that opens and
    closes before it is written is never in `charges_open`.
    """

    def __init__(
        self,
        names: NameNumbers,
        *,
        values: InternedValues,
        state: State,
        last: int,
        keeps_open: bool = False,
    ) -> None:
        """Continue after the row numbered `last`.

        With `keeps_open` open rows stay in memory until `keeps_open` is cleared. So `charges_open`
        is written once, and has no rows that close before.
        """
        self.keeps_open = keeps_open
        self._names = names
        self._values = values
        self._last = last
        self._rows: list[tuple[Cell, ...]] = []
        self._open: dict[RowKey, OpenRow] = {}
        self._closed: list[ClosedRow] = []
        self._closings: list[Closing] = []
        self._read = self._marked = state.labels.get(READ, 0)

    def collect(self, change: RecordChange) -> None:
        """Close the parts that ended with the record, and open those that began."""
        position, namespaces = change.record.position, change.state.namespaces
        self._read = change.state.labels.get(READ, 0)
        for (namespace, key), known in change.keys.items():
            before = known or _NOTHING_HELD
            after = namespaces[namespace].entries.get(key, _NOTHING_HELD)
            number = self._names.namespace(namespace, position)
            if before.holds != after.holds:
                self._collect_holds(change, (number, namespace, key), before.holds, after.holds)
            if before.committed != after.committed:
                self._collect_object(
                    change, (number, namespace, key), before.committed, after.committed
                )

    def _collect_holds(
        self,
        change: RecordChange,
        where: NumberedKey,
        before: tuple[Hold, ...],
        after: tuple[Hold, ...],
    ) -> None:
        number, namespace, key = where
        position = change.record.position
        for hold in before:
            if hold not in after:
                cause = change.causes.get((namespace, key, hold.uid, hold.base))
                if cause is None:
                    again = any(
                        other.uid == hold.uid and other.base == hold.base for other in after
                    )
                    cause = RAISED if again else COMMITTED
                self._end((number, key, hold.base, hold.uid), position, cause)
        for hold in after:
            if hold not in before:
                self._begin_hold((number, key, hold.base, hold.uid), hold, change)

    def _collect_object(
        self, change: RecordChange, where: NumberedKey, before: Object | None, after: Object | None
    ) -> None:
        number, namespace, key = where
        position = change.record.position
        if before is not None:
            cause = change.causes.get((namespace, key, before.uid, OBJECT), UPDATED)
            self._end((number, key, OBJECT, before.uid), position, cause)
        if after is not None:
            self._begin_object((number, key, OBJECT, after.uid), after, change)

    def _begin_hold(self, identity: RowKey, hold: Hold, change: RecordChange) -> None:
        position, demand, known = change.record.position, hold.demand, self._values.remembered
        source = (id(demand), hold.owner, hold.actor, hold.root, hold.traits)
        numbers, _ = known.get(source, _UNKNOWN)
        if not numbers:
            number = self._values.number
            owner, actor = number(hold.owner, position), number(hold.actor, position)
            numbers = (
                number(_encode(demand), position),
                owner,
                actor,
                number(hold.root, position),
                number(_encode(hold.traits), position),
            )
            self._values.remember(known, source, numbers, demand)
        self._begin(identity, hold, change, (0, numbers[0], None), numbers[1:])

    def _begin_object(self, identity: RowKey, stored: Object, change: RecordChange) -> None:
        position, demand = change.record.position, stored.demand
        number, admitted = self._values.number, None
        if stored.admitted is not None:
            admitted = number(_encode(stored.admitted), position)
        known = self._values.remembered
        source = (id(demand), stored.root, stored.traits)
        numbers, _ = known.get(source, _UNKNOWN)
        if not numbers:
            numbers = (
                number(_encode(demand), position),
                number(stored.root, position),
                number(_encode(stored.traits), position),
            )
            self._values.remember(known, source, numbers, demand)
        self._begin(
            identity, stored, change, (stored.version, numbers[0], admitted), (0, 0, *numbers[1:])
        )

    def _begin(
        self,
        identity: RowKey,
        part: Hold | Object,
        change: RecordChange,
        amounts: tuple[Cell, ...],
        source: tuple[Cell, ...],
    ) -> None:
        """Collect a row. `amounts` and `source` are its columns before and after `since`."""
        position = change.record.position
        number = self._last = self._last + 1
        since = None if part.time == change.record.time else part.time
        read = recorded_up_to(part.traits) if part.traits else 0
        devices = _encode(part.devices) if isinstance(part, Object) and part.devices else None
        self._rows.append((number, *identity, *amounts, since, *source, read, devices, position))
        self._open[identity] = number, position, read

    def _end(self, identity: RowKey, position: int, cause: str) -> None:
        number = self._values.number(cause, position)
        known = self._open.pop(identity, None)
        if known is None:
            self._closings.append((*identity, position, number))
        else:
            row, opened, _ = known
            self._closed.append(closed_row(opened, identity[0], position, row, number))

    def write(self, connection: sqlite3.Connection) -> None:
        """Write the collected rows, see `ChargeRows.write`."""
        opened: list[tuple[Cell, ...]] = []
        if not self.keeps_open:
            newest = self._read
            for identity, (number, position, read) in self._open.items():
                opened.append((*identity, number, position, read if read < newest else None))
            self._open.clear()
        read = self._read if self._read > self._marked else 0
        ChargeRows(read, self._rows, opened, self._closed, self._closings).write(connection)
        self._marked = self._read
        self._rows, self._closed, self._closings = [], [], []
