"""Table protocol: the two methods of each table, and the error if the file contradicts the log."""

import sqlite3
from typing import Protocol

from projections.record_changes import RecordChange


class Table(Protocol):
    """One kind of rows. Rows wait in memory from `collect` until `write`, in one transaction."""

    def collect(self, change: RecordChange) -> None:
        """Turn what a record changed into rows."""
        ...

    def write(self, connection: sqlite3.Connection) -> None:
        """Write the rows that wait, inside the caller's transaction and on its thread."""
        ...


class DamagedProjection(Exception):
    """The file contradicts the log; delete it, and the service builds it again."""


def check_closed(table: str, closed: int, wanted: int) -> None:
    """Raise DamagedProjection unless as many rows of a table were closed as the log closes."""
    if wanted and closed != wanted:
        raise DamagedProjection(
            f"the table {table} has {closed} of {wanted} rows that the log now closes: delete the"
            " file, it is built again from the log"
        )
