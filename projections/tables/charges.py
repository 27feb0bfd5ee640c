"""Charges: the holds and objects that make up what each key is charged, as intervals."""

from typing import Final

import aiosqlite
import msgspec

from ledger.core.events import OBJECT
from ledger.core.state import Entry, Hold, Object
from projections.folding import Change
from projections.intervals import fork
from projections.tables.names import Names

COMMITTED: Final = "committed"
"""The hold ended because its object was seen persisted."""
RAISED: Final = "raised"
"""The hold goes on in the next row, with a larger demand."""
UPDATED: Final = "updated"
"""The object goes on in the next row, at a newer version."""

_encoder: Final = msgspec.msgpack.Encoder(order="deterministic")

Part = Hold | Object
Identity = tuple[int, str, int, str]
"""`(namespace, key, base, uid)`: what an open row is found by."""


class Damaged(Exception):
    """The file does not hold what the log says it must; delete it and let it be built again."""


class Charges:
    """The table `charges`.

    A row that opens and closes before it is written is written once. Rows are written in the order
    of opening, whatever the size of the transactions.
    """

    def __init__(self, names: Names) -> None:
        self._names = names
        self._rows: list[Row] = []
        self._open: dict[Identity, Row] = {}
        self._closings: list[tuple[int, str, int, int, str, int, str]] = []

    def take(self, change: Change) -> None:
        """Close the parts that ended with the record and open the ones that began."""
        position, namespaces = change.record.position, change.state.namespaces
        for (namespace, key), before in change.keys.items():
            after = namespaces[namespace].entries.get(key)
            if before is after:
                continue
            number = self._names.namespace(namespace, position)
            old, new = _parts(before), _parts(after)
            for part in old:
                if part not in new:
                    cause = change.causes.get((namespace, key, part.uid, _base(part)))
                    identity = (number, key, _base(part), part.uid)
                    self._end(identity, position, cause or _went_on(part, new))
            for part in new:
                if part not in old:
                    self._begin((number, key, _base(part), part.uid), part, position)

    def _begin(self, identity: Identity, part: Part, position: int) -> None:
        row = Row(identity, part, position)
        self._rows.append(row)
        self._open[identity] = row

    def _end(self, identity: Identity, position: int, cause: str) -> None:
        row = self._open.pop(identity, None)
        if row is None:
            self._closings.append((position, cause, position, *identity))
        else:
            row.closed, row.cause = position, cause

    async def write(self, connection: aiosqlite.Connection) -> None:
        """Write closings and rows that wait. Raises Damaged when a row to close is not open."""
        async with connection.executemany(_CLOSE, self._closings) as cursor:
            if self._closings and cursor.rowcount != len(self._closings):
                raise Damaged(
                    f"the table charges has {cursor.rowcount} of {len(self._closings)} rows that"
                    " the log now closes: delete the file, it is built again from the log"
                )
        await connection.executemany(_INSERT, [row.values() for row in self._rows])
        self._closings.clear()
        self._rows.clear()
        self._open.clear()


class Row:
    """A row that is not written yet."""

    __slots__ = ("cause", "closed", "identity", "opened", "part")

    def __init__(self, identity: Identity, part: Part, opened: int) -> None:
        self.identity, self.part, self.opened = identity, part, opened
        self.closed: int | None = None
        self.cause: str | None = None

    def values(self) -> tuple[int | str | bytes | None, ...]:
        """Return the columns in the order of the insert."""
        part, opened, closed = self.part, self.opened, self.closed
        version, owner, actor = 0, "", ""
        if isinstance(part, Hold):
            owner, actor = part.owner, part.actor
        else:
            version = part.version
        place = None if closed is None else fork(opened, closed)
        own = (version, _encoder.encode(part.demand), part.time, owner, actor)
        return (*self.identity, *own, opened, closed, self.cause, place)


_CLOSE: Final = """
UPDATE charges SET closed = ?, cause = ?, fork = fork(opened, ?)
WHERE namespace = ? AND key = ? AND base = ? AND uid = ? AND closed IS NULL
"""
_INSERT: Final = """
INSERT INTO charges
  (namespace, key, base, uid, version, demand, since, owner, actor, opened, closed, cause, fork)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
"""


def _parts(entry: Entry | None) -> tuple[Part, ...]:
    if entry is None:
        return ()
    return entry.holds if entry.committed is None else (*entry.holds, entry.committed)


def _base(part: Part) -> int:
    return part.base if isinstance(part, Hold) else OBJECT


def _went_on(part: Part, new: tuple[Part, ...]) -> str:
    """Return why a part ended that no release names."""
    if isinstance(part, Object):
        return UPDATED
    same = any(_base(one) == part.base and one.uid == part.uid for one in new)
    return RAISED if same else COMMITTED
