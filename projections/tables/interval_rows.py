"""Interval rows: rows that open and close, collected in memory and written in bulk.

A row that opens and closes before it is written is written once. Rows that an earlier transaction
wrote are closed first; new rows are inserted in the order of opening, for any size of the
transactions.
"""

import sqlite3

from projections.tables.table_protocol import check_closed

Cell = int | str | bytes | None
Identity = tuple[int | str, ...]
"""Values that find an open row: at most one row with them is open."""


class IntervalRows:
    """The collected rows of one table whose last two columns are `opened` and `closed`."""

    def __init__(self, table: str, *, identity: tuple[str, ...], columns: tuple[str, ...]) -> None:
        """Collect rows of `columns`; `identity` are the columns by which an open row is found."""
        names = (*columns, "opened", "closed")
        places = ", ".join("?" * len(names))
        condition = " AND ".join(f"{column} = ?" for column in identity)
        self._table = table
        self._insert = f"INSERT INTO {table} ({', '.join(names)}) VALUES ({places})"
        self._close = f"UPDATE {table} SET closed = ? WHERE {condition} AND closed IS NULL"
        self._rows: list[list[Cell]] = []
        self._open: dict[Identity, list[Cell]] = {}
        self._closings: list[tuple[Cell, ...]] = []

    def open(self, identity: Identity, values: tuple[Cell, ...], position: int) -> None:
        """Open a row at a position."""
        row = self._open[identity] = [*values, position, None]
        self._rows.append(row)

    def close(self, identity: Identity, position: int) -> None:
        """Close the open row with these values at a position."""
        row = self._open.pop(identity, None)
        if row is None:
            self._closings.append((position, *identity))
        else:
            row[-1] = position

    def write(self, connection: sqlite3.Connection) -> None:
        """Write the collected rows. Raises DamagedProjection when a row to close is not open."""
        if self._closings:
            closed = connection.executemany(self._close, self._closings).rowcount
            check_closed(self._table, closed, len(self._closings))
            self._closings.clear()
        if self._rows:
            connection.executemany(self._insert, self._rows)
            self._rows.clear()
        self._open.clear()
