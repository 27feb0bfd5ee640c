"""Charge rows: the collected rows of the tables of charges, and their writes in bulk."""

import sqlite3
from itertools import chain
from typing import Final, NamedTuple

from projections.store.interval_index import fork
from projections.store.row_inserts import VALUES_AT_ONCE, Cell, RowInsert
from projections.tables.table_protocol import check_closed

RowKey = tuple[int, str, int, str]
"""`(namespace, key, base, uid)`: what an open row is found by."""

OpenRow = tuple[int, int, int]
"""Number, position of opening, and up to which number its labels are recorded."""

ClosedRow = tuple[int, int, int, int, int]
"""Fork, namespace, position of closing, number and cause."""

Closing = tuple[int, str, int, str, int, int]
"""The values of a row key, position of closing and cause."""


class ChargeRows(NamedTuple):
    """The rows of one transaction. `closings` end rows of earlier transactions.

    `read` is the highest number that a label has, when it is new, and 0 otherwise.
    """

    read: int
    rows: list[tuple[Cell, ...]]
    opened: list[tuple[Cell, ...]]
    closed: list[ClosedRow]
    closings: list[Closing]

    def write(self, connection: sqlite3.Connection) -> None:
        """Write all rows. Raises DamagedProjection when a row to close is not open."""
        if self.read:
            connection.execute(_MARK)
        taken = _take(connection, sorted(self.closings))
        _CHARGES.write(connection, self.rows)
        _OPEN.write(connection, sorted(self.opened))
        _CLOSED.write(connection, sorted(self.closed + taken))


def last_charge(connection: sqlite3.Connection) -> int:
    """Return the number of the newest row of `charges`, 0 without one."""
    (last,) = connection.execute("SELECT coalesce(max(number), 0) FROM charges").fetchone()
    return int(last)


def closed_row(opened: int, namespace: int, closed: int, number: int, cause: int) -> ClosedRow:
    """Return the row of a charge that was open from one position to another."""
    return fork(opened, closed), namespace, closed, number, cause


def _take(connection: sqlite3.Connection, closings: list[Closing]) -> list[ClosedRow]:
    """Take the rows that earlier transactions opened from `charges_open`."""
    rows: list[ClosedRow] = []
    for start in range(0, len(closings), _AT_ONCE):
        part = closings[start : start + _AT_ONCE]
        statement = _KNOWN if len(part) == _AT_ONCE else _known(len(part))
        for opened, *cells in connection.execute(statement, [*chain.from_iterable(part)]):
            rows.append(closed_row(opened, *cells))
    check_closed("charges_open", len(rows), len(closings))
    _ENDED.write(connection, [closing[:4] for closing in closings])
    return rows


def _known(count: int) -> str:
    """Return the statement that finds so many open rows."""
    return f"""
WITH closing (namespace, key, base, uid, position, cause) AS
  (VALUES {", ".join(["(?, ?, ?, ?, ?, ?)"] * count)})
SELECT opened, closing.namespace, position, number, cause
FROM closing CROSS JOIN charges_open USING (namespace, key, base, uid)
"""


_AT_ONCE: Final = VALUES_AT_ONCE // 6
_KNOWN: Final = _known(_AT_ONCE)
_MARK: Final = """
UPDATE charges_open SET unread = (
  SELECT read FROM charges WHERE charges.number = charges_open.number
)
WHERE unread IS NULL
"""
_CHARGES: Final = RowInsert(
    "charges",
    *("number", "namespace", "key", "base", "uid", "version", "demand", "admitted", "since"),
    *("owner", "actor", "root", "traits", "read", "devices", "opened"),
)
_OPEN: Final = RowInsert(
    "charges_open", "namespace", "key", "base", "uid", "number", "opened", "unread"
)
_CLOSED: Final = RowInsert("charges_closed", "fork", "namespace", "closed", "number", "cause")
_ENDED: Final = RowInsert("temp.charges_ended", "namespace", "key", "base", "uid")
"""A view whose trigger deletes the row of `charges_open`; see `store_writer`."""
