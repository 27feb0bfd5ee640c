"""Holder changes: the holders of a namespace that came, went or changed between two positions.

Only rows that opened or closed in between are read, and the other rows of their keys.
"""

from typing import Final

import msgspec

from ledger.core.model.amounts import Amounts
from projections.queries.charged_units import (
    COLUMNS,
    ChargeRow,
    InternedBodies,
    KeyCharge,
    charges_of,
    read_rows,
)
from projections.queries.query_scope import NumberedNamespace
from projections.queries.tenants.charge_pages import Values, last_number
from projections.store.interval_index import forks_around
from projections.store.readers import ProjectionView

ROWS_MAX: Final = 1_000
"""Most rows that ended, and most rows that began, of one answer."""

_NOTHING: Final[Amounts] = {}


class HolderChange(msgspec.Struct, frozen=True):
    """The charge of a key at both positions, nothing where it had none.

    `root` is the key of the root whose charge includes it, empty for none.
    """

    key: str
    root: str
    before: Amounts
    after: Amounts


class HolderChanges(msgspec.Struct, frozen=True):
    """The changes by key. `complete`: no more than `ROWS_MAX` rows ended or began."""

    came: list[HolderChange]
    went: list[HolderChange]
    changed: list[HolderChange]
    complete: bool


async def holder_changes(
    view: ProjectionView, namespace: NumberedNamespace, first: int, last: int
) -> HolderChanges:
    """Return the changes from after position `first` to after position `last`."""
    head = view.head.position
    values: Values = {
        "namespace": namespace.number,
        "first": first,
        "last": last,
        "before": await last_number(view, first),
        "until": await last_number(view, last),
        "forks_first": _forks(first, head),
        "forks_last": _forks(last, head),
        "rows": ROWS_MAX + 1,
    }
    ended = await _rows(view, namespace, _ENDED, values)
    begun = await _rows(view, namespace, _BEGUN_NOW if last == head else _BEGUN_THEN, values)
    keys = sorted({row.key for row in (*ended, *begun)})
    values["keys"] = msgspec.json.encode(keys).decode()
    kept = await _rows(view, namespace, _KEPT_NOW if last == head else _KEPT_THEN, values)
    complete = len(ended) <= ROWS_MAX and len(begun) <= ROWS_MAX
    return _changes(_charges([*ended, *kept]), _charges([*begun, *kept]), complete=complete)


def _forks(position: int, head: int) -> str:
    return msgspec.json.encode(forks_around(position, head)).decode()


async def _rows(
    view: ProjectionView,
    namespace: NumberedNamespace,
    statement: str,
    values: Values,
) -> list[ChargeRow]:
    async with view.connection.execute(statement, values) as cursor:
        fetched = list(await cursor.fetchall())
    return list(await read_rows(namespace, InternedBodies(view), fetched))


def _charges(rows: list[ChargeRow]) -> dict[str, KeyCharge]:
    in_order = sorted(rows, key=lambda row: (row.key, row.base, row.uid))
    return {held.key: held for held in charges_of(in_order)}


def _changes(
    before: dict[str, KeyCharge], after: dict[str, KeyCharge], *, complete: bool
) -> HolderChanges:
    came, went, changed = list[HolderChange](), list[HolderChange](), list[HolderChange]()
    for key in sorted(before.keys() | after.keys()):
        old, new = before.get(key), after.get(key)
        change = HolderChange(
            key,
            (new or old).root,  # type: ignore[union-attr]
            _NOTHING if old is None else old.charge,
            _NOTHING if new is None else new.charge,
        )
        if old is None:
            came.append(change)
        elif new is None:
            went.append(change)
        elif change.before != change.after:
            changed.append(change)
    return HolderChanges(came, went, changed, complete)


_OF_CLOSED: Final = f"""
    SELECT {COLUMNS} FROM charges_closed AS c CROSS JOIN charges ON charges.number = c.number
    WHERE c.namespace = :namespace
"""
_OF_OPEN: Final = f"""
    SELECT {COLUMNS} FROM charges_open AS o CROSS JOIN charges ON charges.number = o.number
    WHERE o.namespace = :namespace
"""
_ENDED: Final = f"""{_OF_CLOSED}
    AND c.fork IN (SELECT value FROM json_each(:forks_first))
    AND c.closed > :first AND c.closed <= :last AND c.number <= :before
    LIMIT :rows
"""
_BEGUN_NOW: Final = f"{_OF_OPEN} AND o.number > :before AND o.number <= :until LIMIT :rows"
_BEGUN_THEN: Final = f"""
    SELECT * FROM ({_BEGUN_NOW})
    UNION ALL
    SELECT * FROM ({_OF_CLOSED}
        AND c.fork IN (SELECT value FROM json_each(:forks_last))
        AND c.closed > :last AND c.number > :before AND c.number <= :until
        LIMIT :rows
    )
"""
_KEPT_NOW: Final = f"""{_OF_OPEN}
    AND o.key IN (SELECT value FROM json_each(:keys)) AND o.number <= :before
"""
_KEPT_THEN: Final = f"""{_KEPT_NOW}
    UNION ALL {_OF_CLOSED}
    AND c.fork IN (SELECT value FROM json_each(:forks_last))
    AND c.closed > :last AND c.number <= :before
    AND charges.key IN (SELECT value FROM json_each(:keys))
"""
