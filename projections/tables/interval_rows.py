"""Interval rows: rows that open and close, collected in memory and written in bulk.

A row that opens and closes before it is written is written once. Rows that an earlier transaction
wrote are closed first; new rows are inserted in the order of opening, for any size of the
transactions.
"""

import sqlite3

from projections.store.interval_index import fork
from projections.store.row_inserts import Cell, RowInsert
from projections.tables.table_protocol import check_closed

Identity = tuple[int | str, ...]
"""Values that find an open row: at most one row with them is open."""


class IntervalRows:
    """The collected rows of one table whose last columns are `opened`, `closed`, perhaps `fork`."""

    def __init__(
        self,
        table: str,
        *,
        identity: tuple[str, ...],
        columns: tuple[str, ...],
        filed: bool = False,
    ) -> None:
        """Collect rows of `columns`; `identity` are the columns by which an open row is found.

        With `filed`, closed rows are found by `fork`; see `interval_index`.
        """
        names = (*columns, "opened", "closed", *(("fork",) if filed else ()))
        condition = " AND ".join(f"{column} = ?{at}" for at, column in enumerate(identity, 2))
        change = "closed = ?1" + (", fork = fork(opened, ?1)" if filed else "")
        self._table, self._filed = table, filed
        self._insert = RowInsert(table, *names)
        self._close = f"UPDATE {table} SET {change} WHERE {condition} AND closed IS NULL"
        self._rows: list[list[Cell]] = []
        self._open: dict[Identity, tuple[int, list[Cell]]] = {}
        self._closings: list[tuple[Cell, ...]] = []

    def open(self, identity: Identity, values: tuple[Cell, ...], position: int) -> None:
        """Open a row at a position."""
        row = [*values, position, None, None] if self._filed else [*values, position, None]
        self._open[identity] = position, row
        self._rows.append(row)

    def close(self, identity: Identity, position: int) -> None:
        """Close the open row with these values at a position."""
        known = self._open.pop(identity, None)
        if known is None:
            self._closings.append((position, *identity))
            return
        opened, row = known
        if self._filed:
            row[-2:] = position, fork(opened, position)
        else:
            row[-1] = position

    def write(self, connection: sqlite3.Connection) -> None:
        """Write the collected rows. Raises DamagedProjection when a row to close is not open."""
        if self._closings:
            closed = connection.executemany(self._close, self._closings).rowcount
            check_closed(self._table, closed, len(self._closings))
            self._closings.clear()
        if self._rows:
            self._insert.write(connection, self._rows)
            self._rows.clear()
        self._open.clear()
