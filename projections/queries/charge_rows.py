"""Charge rows: those that were open at a position; holders and holds are made of them."""

from collections.abc import AsyncGenerator
from typing import Final

import msgspec

from ledger.core.model.amounts import Amounts
from ledger.core.model.events import OBJECT
from ledger.core.model.traits import Traits
from projections.queries.scopes import NumberedNamespace
from projections.store.interval_index import forks_around
from projections.store.readers import ProjectionView

_ROWS_AT_ONCE: Final = 1_000


class ChargeRow(msgspec.Struct, frozen=True, gc=False):
    """One part of a key's charge: an open hold, or with base -1 the committed object.

    `since` is in µs of Unix time. `admitted` is the admitted part of an object's demand, None for
    all of it.
    """

    namespace: NumberedNamespace
    key: str
    uid: str
    base: int
    demand: Amounts
    admitted: Amounts | None
    traits: Traits
    root: str
    since: int
    owner: str
    actor: str


async def charge_rows(
    view: ProjectionView,
    position: int,
    namespace: NumberedNamespace,
    *,
    after: str = "",
    lowest: int = OBJECT,
) -> AsyncGenerator[ChargeRow, None]:
    """Yield the rows open at a position in a namespace, by key, after the key `after`.

    Parts with a base under `lowest` are left out; 0 leaves the holds.
    """
    values = {
        "position": position,
        "namespace": namespace.number,
        "after": after,
        "lowest": lowest,
        "forks": msgspec.json.encode(forks_around(position, view.head.position)).decode(),
    }
    statement = _NOW if position == view.head.position else _THEN
    async with view.connection.execute(statement, values) as cursor:
        while rows := await cursor.fetchmany(_ROWS_AT_ONCE):
            for key, uid, base, demand, admitted, traits, *rest in rows:
                part = None if admitted is None else _demands.decode(admitted)
                bodies = (_demands.decode(demand), part, _traits.decode(traits))
                yield ChargeRow(namespace, key, uid, base, *bodies, *rest)


_demands: Final = msgspec.msgpack.Decoder(Amounts)
_traits: Final = msgspec.msgpack.Decoder(Traits)

_COLUMNS: Final = "key, uid, base, demand, admitted, traits, root, since, owner, actor"
_STILL_OPEN: Final = f"""
    SELECT {_COLUMNS} FROM charges
    WHERE namespace = :namespace AND closed IS NULL AND opened <= :position AND key > :after
    AND base >= :lowest
"""
_CLOSED_SINCE: Final = f"""
    SELECT {_COLUMNS} FROM charges
    WHERE namespace = :namespace AND closed > :position AND opened <= :position AND key > :after
    AND base >= :lowest AND fork IN (SELECT value FROM json_each(:forks))
"""
_BY_KEY: Final = "ORDER BY key, base, uid"
_NOW: Final = f"{_STILL_OPEN} {_BY_KEY}"
_THEN: Final = f"{_STILL_OPEN} UNION ALL {_CLOSED_SINCE} {_BY_KEY}"
