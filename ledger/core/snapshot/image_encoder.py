"""Image encoder: the tables of a state, made in pieces so that other tasks can run in between."""

from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from operator import attrgetter
from typing import Any, Final

import msgspec

from ledger.core.model.amounts import Amounts
from ledger.core.model.devices import Devices
from ledger.core.model.state import Hold, Namespace, Object, State
from ledger.core.snapshot.number_columns import pack
from ledger.core.snapshot.snapshot_image import (
    Allocations,
    Entries,
    Holds,
    ImageWithDevices,
    Lines,
    Objects,
    Pools,
    SnapshotImage,
    Spaces,
)

PIECE_ROWS: Final = 4_096
"""Keys and namespaces of one piece, which takes some milliseconds."""

_canonical: Final = msgspec.msgpack.Encoder(order="deterministic")
_uid_of: Final = attrgetter("uid")


class _Numbers(dict[Any, int]):
    """Numbers of values, in the order in which they are first looked up."""

    def __missing__(self, value: Any) -> int:
        number = self[value] = len(self)
        return number


class _SharedValues:
    """The pools of texts, amounts and traits."""

    def __init__(self) -> None:
        self.texts, self.traits = _Numbers(), _Numbers()
        self._amounts, self._known = list[Amounts](), _Numbers()

    def amounts(self, amounts: Amounts) -> int:
        """Return the number of amounts."""
        number = self._known[_canonical.encode(amounts)]
        if number == len(self._amounts):
            self._amounts.append(amounts)
        return number

    def hold(self, hold: Hold) -> tuple[int, ...]:
        """Return the shape of a hold."""
        texts = self.texts
        return (
            self.amounts(hold.demand),
            texts[hold.stamp],
            texts[hold.owner],
            texts[hold.actor],
            texts[hold.root],
            self.traits[hold.traits],
        )

    def object(self, stored: Object) -> tuple[int, ...]:
        """Return the shape of a committed object."""
        return (
            self.amounts(stored.demand),
            self.texts[stored.root],
            self.traits[stored.traits],
            self.optional_amounts(stored.admitted),
        )

    def optional_amounts(self, amounts: Amounts | None) -> int:
        """Return the number of amounts plus one, 0 for None."""
        return 0 if amounts is None else self.amounts(amounts) + 1

    def pools(self) -> Pools:
        """Return the pools."""
        return Pools([*self.texts], self._amounts, [*self.traits])


class _Table:
    """The rows of holds or of committed objects."""

    def __init__(self, shape: Callable[[Any], tuple[int, ...]], *fields: str) -> None:
        """`fields` are stored as columns, `shape` returns the shared ones of a row."""
        self._shape = shape
        self._uids: list[str] = []
        self._fields = [(attrgetter(field), list[int]()) for field in fields]
        self._shapes, self._numbers = _Numbers(), list[int]()

    def __len__(self) -> int:
        return len(self._uids)

    def add(self, rows: Sequence[Any], keys: Sequence[Any]) -> None:
        """Add rows. Rows with one key have one shape; keys are compared in this call only."""
        self._uids.extend(map(_uid_of, rows))
        for field, column in self._fields:
            column.extend(map(field, rows))
        known = {
            key: self._shapes[self._shape(row)]
            for key, row in dict(zip(keys, rows, strict=True)).items()
        }
        self._numbers.extend(map(known.__getitem__, keys))

    def columns(self) -> tuple[Any, ...]:
        """Return uids, columns, the column of shapes, and the shapes."""
        packed = (pack(column) for _, column in self._fields)
        return self._uids, *packed, pack(self._numbers), [*self._shapes]


class ImageEncoder:
    """The tables of a state that does not change meanwhile; take all `pieces`, then the `image`."""

    def __init__(self, state: State) -> None:
        """Encode a state at the end of a record."""
        self._state = state
        self._accounts = _Numbers()
        for name in sorted(state.accounts):
            self._accounts[name] = len(self._accounts)
        self._names = sorted(state.namespaces)
        self._values = _SharedValues()
        self._counts = list[int](), list[int](), list[int](), list[int]()
        self._covering = list[int]()
        self._keys, self._bodies = list[str](), list[int]()
        self._objects = _Table(self._values.object, "version", "time", "generation")
        self._holds = _Table(self._values.hold, "base", "time", "raises")
        self._allocated = list[tuple[int, Devices, int]]()

    def pieces(self) -> Iterator[None]:
        """Read the namespaces, about `PIECE_ROWS` keys and namespaces at a time."""
        piece, rows = list[Namespace](), 0
        for name in self._names:
            space = self._state.namespaces[name]
            piece.append(space)
            rows += 1 + len(space.entries)
            if rows >= PIECE_ROWS:
                self._add(piece)
                piece, rows = [], 0
                yield
        self._add(piece)

    def image(self) -> SnapshotImage:
        """Return the tables, after the last piece."""
        state = self._state
        lines = self._lines()
        entries, objects, holds, covering = map(pack, self._counts)
        tables = (
            state.position,
            state.hash,
            state.time,
            state.clusters,
            state.labels,
            self._values.pools(),
            [*self._accounts],
            [state.accounts[name] for name in sorted(state.accounts)],
            lines,
            Spaces(self._names, entries, objects, holds, covering, pack(self._covering)),
            Entries(self._keys, pack(self._bodies)),
            Objects(*self._objects.columns()),
            Holds(*self._holds.columns()),
            [(uid, state.ended[uid]) for uid in state.ended_order],
            state.described,
            state.described_at,
            state.nodes,
            {name: space.placed for name, space in state.namespaces.items() if space.placed},
            state.claims,
        )
        if not self._allocated:
            return SnapshotImage(*tables)
        rows, devices, bounds = zip(*self._allocated, strict=True)
        return ImageWithDevices(*tables, Allocations(pack(rows), [*devices], pack(bounds)))

    def _add(self, spaces: Sequence[Namespace]) -> None:
        objects, holds = list[Object](), list[Hold]()
        for space in spaces:
            self._add_space(space, objects, holds)
        first = len(self._objects)
        for row, stored in enumerate(objects, start=first):
            if stored.bound is not None:
                bound = self._values.optional_amounts(stored.bound)
                self._allocated.append((row, stored.devices, bound))
        self._objects.add(
            objects, [(id(row.demand), row.root, row.traits, id(row.admitted)) for row in objects]
        )
        self._holds.add(
            holds,
            [
                (id(row.demand), row.stamp, row.owner, row.actor, row.root, row.traits)
                for row in holds
            ],
        )

    def _add_space(self, space: Namespace, objects: list[Object], holds: list[Hold]) -> None:
        """Add the keys of a namespace, and its objects and holds to those of the piece."""
        keys = sorted(space.entries)
        entries = [space.entries[key] for key in keys]
        stored = [entry.committed for entry in entries]
        held = [entry.holds for entry in entries]
        before = len(objects), len(holds)
        objects += [body for body in stored if body is not None]
        holds += chain.from_iterable(held)
        self._keys += keys
        self._bodies += [
            2 * len(own) + (body is not None) for own, body in zip(held, stored, strict=True)
        ]
        self._covering += [self._accounts[name] for name in space.accounts]
        sizes = len(keys), len(objects) - before[0], len(holds) - before[1], len(space.accounts)
        for column, size in zip(self._counts, sizes, strict=True):
            column.append(size)

    def _lines(self) -> Lines:
        keys, state = _Numbers(), self._state
        accounts = [self._accounts[name] for name, _ in state.names]
        numbers = [keys[key] for _, key in state.names]
        return Lines(pack(accounts), pack(numbers), [*keys], state.used, state.limit)
