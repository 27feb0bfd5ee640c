"""Charge pages: the charges of some keys of a namespace, a page at a time, as of a position.

A page examines a bounded number of open rows however many keys the namespace has.
"""

from typing import Final

import msgspec

from ledger.core.evolve.envelope_charges import PODS, RESOURCE_CLAIMS
from projections.queries.charged_units import (
    COLUMNS,
    InternedBodies,
    KeyCharge,
    charges_of,
    read_rows,
)
from projections.queries.query_scope import NumberedNamespace
from projections.store.interval_index import forks_around
from projections.store.readers import ProjectionView
from projections.tables.interned_values import FIXED

SCANNED_MAX: Final = 20_000
"""Most open rows that a page examines. A page that reaches it may be short and has a next one."""

Values = dict[str, int | str]
"""Values of a statement, by name."""


class KeySelection(msgspec.Struct, frozen=True):
    """The keys of a page: a condition on `key`, one on the rows of a key together, and the root
    that their charges name.

    The second condition holds for all keys with that root, and perhaps for others.
    """

    keys: str
    rows: str = "1"
    root: str | None = None

    def includes(self, held: KeyCharge) -> bool:
        """Return whether a key that meets both conditions is selected."""
        return self.root is None or self.root == held.root


def _within(prefix: str) -> str:
    """Return the condition on keys that begin with a prefix."""
    return f"key >= '{prefix}' AND key < '{prefix[:-1]}{chr(ord(prefix[-1]) + 1)}'"


_IN_PODS: Final = _within(PODS)
_IN_CLAIMS: Final = _within(RESOURCE_CLAIMS)

ROOTS: Final = KeySelection(f"NOT ({_IN_PODS}) AND NOT ({_IN_CLAIMS})")
"""Everything that is neither a pod nor a resource claim."""
CLAIMS: Final = KeySelection(_IN_CLAIMS)
"""Resource claims with a charge of their own."""
PODS_ALONE: Final = KeySelection(
    _IN_PODS, f"min(root) < {len(FIXED)} OR min(root) <> max(root)", ""
)
"""Pods with a charge of their own: they name no root, may not draw from it, or name several."""


def pods_of(root: str) -> KeySelection:
    """Return the selection of the pods that draw from a root, or would if it had an entry."""
    named = "max((SELECT body FROM interned WHERE number = root) = :root)"
    return KeySelection(_IN_PODS, named, root)


async def charge_page(
    view: ProjectionView,
    position: int,
    namespace: NumberedNamespace,
    selection: KeySelection,
    *,
    limit: int,
    after: str = "",
) -> tuple[list[KeyCharge], str]:
    """Return the charges of at most `limit` keys after a key.

    Returns with them the last key before the next page, empty at the end.
    """
    values: Values = {
        "namespace": namespace.number,
        "position": position,
        "after": after,
        "root": selection.root or "",
        "limit": limit + 1,
        "forks": msgspec.json.encode(forks_around(position, view.head.position)).decode(),
    }
    until = await _last_scanned(view, selection, values)
    values |= {"until": until, "bounded": int(bool(until))}
    if position == view.head.position:
        statement = _NOW
    else:
        statement = _THEN
        values["last"] = await last_number(view, position)
    statement = statement.format(keys=selection.keys, rows=selection.rows)
    async with view.connection.execute(statement, values) as rows:
        keys = [(str(key), str(numbers)) async for key, numbers in rows]
    numbers = ",".join(numbers for _, numbers in keys[:limit])
    held = await charges_numbered(view, namespace, numbers)
    return [row for row in held if selection.includes(row)], (
        keys[limit - 1][0] if len(keys) > limit else until
    )


async def last_number(view: ProjectionView, position: int) -> int:
    """Return the number of the last charge row that was opened by a position, 0 without one."""
    async with view.connection.execute(_LAST_NUMBER, {"position": position}) as rows:
        row = await rows.fetchone()
    return int(row[0]) if row is not None else 0


async def charges_numbered(
    view: ProjectionView, namespace: NumberedNamespace, numbers: str
) -> list[KeyCharge]:
    """Return the charges of keys from the numbers of all their rows, separated by commas."""
    async with view.connection.execute(_NUMBERED, (f"[{numbers}]",)) as cursor:
        fetched = list(await cursor.fetchall())
    return charges_of(await read_rows(namespace, InternedBodies(view), fetched))


async def _last_scanned(view: ProjectionView, selection: KeySelection, values: Values) -> str:
    """Return the key at which the scan of a page ends, empty when it ends by itself."""
    statement = f"""
        SELECT key FROM charges_open
        WHERE namespace = :namespace AND key > :after AND {selection.keys}
        ORDER BY key LIMIT 1 OFFSET {SCANNED_MAX}
    """
    async with view.connection.execute(statement, values) as rows:
        row = await rows.fetchone()
    return "" if row is None else str(row[0])


_STILL_OPEN: Final = """
    SELECT charges_open.key, charges_open.number, charges.root
    FROM charges_open CROSS JOIN charges ON charges.number = charges_open.number
    WHERE charges_open.namespace = :namespace AND charges_open.opened <= :position
    AND charges_open.key > :after AND (NOT :bounded OR charges_open.key <= :until)
"""
_CLOSED_SINCE: Final = """
    SELECT charges.key, charges.number, charges.root
    FROM charges_closed CROSS JOIN charges ON charges.number = charges_closed.number
    WHERE fork IN (SELECT value FROM json_each(:forks)) AND charges_closed.namespace = :namespace
    AND closed > :position AND charges_closed.number <= :last
    AND charges.key > :after AND (NOT :bounded OR charges.key <= :until)
"""
_PAGE: Final = """
    SELECT key, group_concat(number) FROM ({0}) WHERE {{keys}}
    GROUP BY key HAVING {{rows}} ORDER BY key LIMIT :limit
"""
_NOW: Final = _PAGE.format(_STILL_OPEN)
_THEN: Final = _PAGE.format(f"{_STILL_OPEN} UNION ALL {_CLOSED_SINCE}")
_NUMBERED: Final = f"""
    SELECT {COLUMNS} FROM charges WHERE number IN (SELECT value FROM json_each(?))
    ORDER BY key, base, uid
"""
_LAST_NUMBER: Final = """
    WITH RECURSIVE halves (low, high) AS (
        SELECT 0, (SELECT coalesce(max(number), 0) FROM charges)
        UNION ALL
        SELECT
            CASE WHEN opened <= :position THEN number ELSE low END,
            CASE WHEN opened <= :position THEN high ELSE number - 1 END
        FROM halves CROSS JOIN charges ON number = (low + high + 1) / 2
        WHERE low < high
    )
    SELECT low FROM halves WHERE low = high
"""
"""Rows are numbered in the order of opening without a gap, so a bisection finds the last one."""
