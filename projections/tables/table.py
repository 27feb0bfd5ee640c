"""What the projector needs from a table."""

from typing import Protocol

import aiosqlite

from projections.tables.changes import RecordChange


class Table(Protocol):
    """One kind of rows. Rows wait in memory from `collect` until `write`, in one transaction."""

    def collect(self, change: RecordChange) -> None:
        """Turn what a record changed into rows."""
        ...

    async def write(self, connection: aiosqlite.Connection) -> None:
        """Write the rows that wait, inside the caller's transaction."""
        ...
