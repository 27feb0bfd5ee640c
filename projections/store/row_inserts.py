"""Row inserts: many rows by few statements.

A statement of many rows costs three quarters of as many statements of one row.
"""

import sqlite3
from collections.abc import Sequence
from itertools import chain
from typing import Final

VALUES_AT_ONCE: Final = 3_000
"""Most values of a statement. SQLite's own limit is 32,766."""

FEWER: Final = 25
"""Factor by which a second statement has fewer rows, for the rest of the rows."""

Cell = int | str | bytes | None


class RowInsert:
    """Inserts rows into one table. SQLite keeps the statements prepared."""

    def __init__(self, table: str, *columns: str) -> None:
        many = VALUES_AT_ONCE // len(columns)
        places = f"({', '.join('?' * len(columns))})"
        statement = f"INSERT INTO {table} ({', '.join(columns)}) VALUES "
        self._one = statement + places
        self._statements = [
            (count, statement + ", ".join([places] * count)) for count in (many, many // FEWER)
        ]

    def write(self, connection: sqlite3.Connection, rows: Sequence[Sequence[Cell]]) -> None:
        """Insert the rows in their order, inside the caller's transaction."""
        start, end = 0, len(rows)
        for count, statement in self._statements:
            while end - start >= count:
                values = [*chain.from_iterable(rows[start : start + count])]
                connection.execute(statement, values)
                start += count
        if start < end:
            connection.executemany(self._one, rows[start:])
