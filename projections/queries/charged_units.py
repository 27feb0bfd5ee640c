"""Charged units: the charge of each key and the draws of each root's pods, as of a position.

A unit has one charge: a key that draws from no root, or a root with its pods. Its charge is put
together from charge rows, which are open holds and committed objects.
"""

import sqlite3
from collections.abc import AsyncGenerator, Iterable, Iterator, Sequence
from contextlib import aclosing
from itertools import groupby
from typing import Final

import msgspec

from ledger.core.model.amounts import Amounts, largest
from ledger.core.model.commands import BARRED
from ledger.core.model.devices import Devices
from ledger.core.model.events import OBJECT
from ledger.core.model.traits import Traits, united
from projections.queries.query_scope import NumberedNamespace
from projections.store.interval_index import forks_around
from projections.store.readers import ProjectionView
from projections.tables.interned_values import FIXED

_ROWS_AT_ONCE: Final = 1_000

INTERNED_MAX: Final = 16_384
"""Interned values in memory beyond which the earlier ones are forgotten."""


class ChargeRow(msgspec.Struct, frozen=True, gc=False):
    """One part of a key's charge: an open hold, or with base -1 the committed object.

    `since` is in µs of Unix time. `admitted` is the admitted part of an object's demand, None for
    all of it. `devices` are those of an object.
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
    devices: Devices = ()


class InternedBodies:
    """The values of the numbers that were asked for in one view; frequent ones are read once.

    `texts` are by number, and so are the amounts and traits in MessagePack, `packed`. Both have all
    values of the last `read`.
    """

    def __init__(self, view: ProjectionView) -> None:
        self._view = view
        self.texts: dict[int, str] = dict(enumerate(FIXED))
        self.packed: dict[int, bytes] = {}

    async def read(self, numbers: Iterable[int | None]) -> None:
        """Read the values of these numbers; None is skipped."""
        if len(self.texts) + len(self.packed) > INTERNED_MAX:
            self.texts, self.packed = dict(enumerate(FIXED)), {}
        wanted = {number for number in numbers if number is not None}
        wanted -= self.texts.keys() | self.packed.keys()
        if wanted:
            encoded = msgspec.json.encode(sorted(wanted)).decode()
            async with self._view.connection.execute(_INTERNED, (encoded,)) as rows:
                async for number, body in rows:
                    if isinstance(body, str):
                        self.texts[number] = body
                    else:
                        self.packed[number] = body


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
    interned = InternedBodies(view)
    async with view.connection.execute(statement, values) as cursor:
        while rows := list(await cursor.fetchmany(_ROWS_AT_ONCE)):
            for row in await read_rows(namespace, interned, rows):
                yield row


async def read_rows(
    namespace: NumberedNamespace, interned: InternedBodies, rows: Sequence[sqlite3.Row]
) -> Iterator[ChargeRow]:
    """Return the parts of fetched rows of `COLUMNS`, to be used before the next read of values."""
    await interned.read(number for row in rows for number in row[_FIRST_INTERNED:])
    return (_charge_row(namespace, interned, row) for row in rows)


def _charge_row(
    namespace: NumberedNamespace, interned: InternedBodies, row: sqlite3.Row
) -> ChargeRow:
    key, uid, base, since, devices, demand, admitted, traits, root, owner, actor = row
    texts, packed = interned.texts, interned.packed
    return ChargeRow(
        namespace,
        key,
        uid,
        base,
        _demands.decode(packed[demand]),
        None if admitted is None else _demands.decode(packed[admitted]),
        _traits.decode(packed[traits]),
        texts[root],
        since,
        texts[owner],
        texts[actor],
        () if devices is None else _devices.decode(devices),
    )


_NOTHING: Final[Amounts] = {}


class KeyCharge(msgspec.Struct, frozen=True, gc=False):
    """The charge of a key: see `ledger.core.model.state.Entry`. `root` is empty when it draws from
    none.

    `uid` and `since` are those of the committed object, or of the first hold without one. `asked`
    and `admitted` are the requested parts of the charge and of the committed amounts, None for all.
    `devices` are those of the committed object.
    """

    namespace: NumberedNamespace
    key: str
    uid: str
    charge: Amounts
    committed: Amounts
    holds: int
    since: int
    root: str
    traits: Traits
    asked: Amounts | None
    admitted: Amounts | None
    devices: Devices = ()


class DrawnAmounts(msgspec.Struct, frozen=True, gc=False):
    """The draws of the pods that name a root, added up; `live`: the root had an entry."""

    charge: Amounts
    committed: Amounts
    pods: int
    live: bool


class Unit(msgspec.Struct, frozen=True, gc=False):
    """A unit: its charge, the committed part of it, and the traits that quotas select by.

    `asked` and `admitted` are the requested parts of both, None for all.
    """

    traits: Traits
    charge: Amounts
    committed: Amounts
    asked: Amounts | None
    admitted: Amounts | None

    def on(self, *, asked_only: bool) -> tuple[Amounts, Amounts]:
        """Return charge and committed amounts on a line."""
        if not asked_only:
            return self.charge, self.committed
        return (
            self.charge if self.asked is None else self.asked,
            self.committed if self.admitted is None else self.admitted,
        )


DrawsByRoot = dict[str, DrawnAmounts]
"""By the keys of the roots of one namespace."""


async def draws(view: ProjectionView, position: int, namespace: NumberedNamespace) -> DrawsByRoot:
    """Return the draws of every root of a namespace at a position."""
    values = {
        "position": position,
        "namespace": namespace.number,
        "forks": msgspec.json.encode(forks_around(position, view.head.position)).decode(),
    }
    statement = _DRAWS_NOW if position == view.head.position else _DRAWS_THEN
    async with view.connection.execute(statement, values) as rows:
        return {
            root: DrawnAmounts(
                _amounts.decode(charge), _amounts.decode(committed), pods, bool(live)
            )
            async for root, charge, committed, pods, live in rows
        }


def is_drawing(held: KeyCharge, by_root: DrawsByRoot) -> bool:
    """Return whether the key is charged as part of its root."""
    drawn = by_root.get(held.root) if held.root else None
    return drawn is not None and drawn.live


async def key_charges(
    view: ProjectionView, position: int, namespace: NumberedNamespace, *, after: str = ""
) -> AsyncGenerator[KeyCharge, None]:
    """Yield the charges of a namespace's keys at a position, after the key `after`."""
    stream = charge_rows(view, position, namespace, after=after)
    async with aclosing(by_key(stream)) as keys:
        async for rows in keys:
            yield _key_charge(rows)


async def units(
    view: ProjectionView, position: int, namespace: NumberedNamespace
) -> AsyncGenerator[Unit, None]:
    """Yield the units of a namespace at a position."""
    by_root = await draws(view, position, namespace)
    async with aclosing(key_charges(view, position, namespace)) as stream:
        async for held in stream:
            if not is_drawing(held, by_root):
                yield unit_of(held, by_root.get(held.key))


def unit_of(held: KeyCharge, drawn: DrawnAmounts | None) -> Unit:
    """Return the unit of a key that draws from no root, with the draws of its own pods."""
    if drawn is None:
        return Unit(held.traits, held.charge, held.committed, held.asked, held.admitted)
    return Unit(
        held.traits,
        largest(held.charge, drawn.charge),
        largest(held.committed, drawn.committed),
        None if held.asked is None else largest(held.asked, drawn.charge),
        None if held.admitted is None else largest(held.admitted, drawn.committed),
    )


async def by_key(stream: AsyncGenerator[ChargeRow, None]) -> AsyncGenerator[list[ChargeRow], None]:
    """Yield the parts of each key together."""
    waiting: list[ChargeRow] = []
    async with aclosing(stream):
        async for part in stream:
            if waiting and waiting[0].key != part.key:
                yield waiting
                waiting = []
            waiting.append(part)
    if waiting:
        yield waiting


def charges_of(rows: Iterable[ChargeRow]) -> list[KeyCharge]:
    """Return the charges of keys from all their parts, which are by key, base and uid."""
    return [_key_charge(list(parts)) for _, parts in groupby(rows, key=lambda row: row.key)]


def _key_charge(rows: list[ChargeRow]) -> KeyCharge:
    """Put all parts of a key together, as `ledger.core.evolve.envelope_charges.entry_of` does."""
    first = rows[0]
    charge, root, traits, asked = first.demand, first.root, first.traits, first.admitted
    for part in rows[1:]:
        charge, traits = largest(charge, part.demand), united(traits, part.traits)
        asked = None if asked is None else largest(asked, part.demand)
        if part.root != root:
            root = ""
    is_committed = first.base == OBJECT
    return KeyCharge(
        first.namespace,
        first.key,
        first.uid,
        charge,
        first.demand if is_committed else _NOTHING,
        len(rows) - is_committed,
        first.since,
        "" if root == BARRED else root,
        traits,
        asked,
        first.admitted,
        first.devices,
    )


_demands: Final = msgspec.msgpack.Decoder(Amounts)
_traits: Final = msgspec.msgpack.Decoder(Traits)
_devices: Final = msgspec.msgpack.Decoder(Devices)

COLUMNS: Final = """
    charges.key, charges.uid, charges.base,
    coalesce(since, (SELECT time FROM records WHERE records.position = charges.opened)),
    devices, demand, admitted, traits, root, owner, actor
"""
_INTERNED: Final = """
    SELECT number, body FROM interned WHERE number IN (SELECT value FROM json_each(?))
"""
_FIRST_INTERNED: Final = 5
"""The first of the columns that are numbers of interned values."""

_STILL_OPEN: Final = f"""
    SELECT {COLUMNS} FROM charges_open CROSS JOIN charges ON charges.number = charges_open.number
    WHERE charges_open.namespace = :namespace AND charges_open.opened <= :position
    AND charges_open.key > :after AND charges_open.base >= :lowest
"""
_CLOSED_SINCE: Final = f"""
    SELECT {COLUMNS} FROM charges_closed CROSS JOIN charges
    ON charges.number = charges_closed.number
    WHERE charges_closed.namespace = :namespace AND closed > :position
    AND charges.opened <= :position AND charges.key > :after AND charges.base >= :lowest
    AND fork IN (SELECT value FROM json_each(:forks))
"""
_NOW: Final = f"""{_STILL_OPEN}
    ORDER BY charges_open.key, charges_open.base, charges_open.uid
"""
_THEN: Final = f"{_STILL_OPEN} UNION ALL {_CLOSED_SINCE} ORDER BY 1, 3, 2"

_amounts: Final = msgspec.msgpack.Decoder(Amounts)

_DRAWS_STILL_OPEN: Final = """
    SELECT root, charge, committed, pods, live FROM draws
    WHERE namespace = :namespace AND closed IS NULL AND opened <= :position
"""
_DRAWS_CLOSED_SINCE: Final = """
    SELECT root, charge, committed, pods, live FROM draws
    WHERE namespace = :namespace AND closed > :position AND opened <= :position
    AND fork IN (SELECT value FROM json_each(:forks))
"""
_DRAWS_NOW: Final = _DRAWS_STILL_OPEN
_DRAWS_THEN: Final = f"{_DRAWS_STILL_OPEN} UNION ALL {_DRAWS_CLOSED_SINCE}"
