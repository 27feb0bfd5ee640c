"""Namespace reader: one namespace at a time from the tables of a snapshot.

The tables are checked when the reader is made, so that a namespace can be read at any later time.
It is read from the tables and from the accounts of the snapshot, which never change. So it does not
matter what happened to the state in the meantime.
"""

from collections.abc import Sequence
from itertools import accumulate, islice
from typing import Any, Final

from msgspec.structs import replace

from ledger.core.evolve.envelope_charges import entry_of
from ledger.core.evolve.quota_coverage import plans
from ledger.core.model.amounts import Amounts
from ledger.core.model.devices import Devices
from ledger.core.model.state import Draw, Entry, Hold, Namespace, Object
from ledger.core.snapshot.number_columns import Column, unpack
from ledger.core.snapshot.rebuilt_indexes import add_draw, open_creations
from ledger.core.snapshot.snapshot_image import (
    Allocations,
    Holds,
    ImageWithDevices,
    Objects,
    Pools,
    SnapshotImage,
)

_ONE_OBJECT: Final = 1
_ONE_HOLD: Final = 2
"""The `bodies` of a key with nothing else."""


class NamespaceReader:
    """Reads namespaces by their rows."""

    def __init__(self, image: SnapshotImage) -> None:
        """Check the tables of an image. Raises ValueError."""
        spaces, self._keys = image.spaces, image.entries.keys
        self._names, self._placed = spaces.names, image.placed
        rows = len(spaces.names)
        self._entries = _starts(spaces.entries, rows, len(self._keys))
        self._object_starts = _starts(spaces.objects, rows, len(image.objects.uids))
        self._hold_starts = _starts(spaces.holds, rows, len(image.holds.uids))
        covering = [0, *accumulate(unpack(spaces.covering, rows))]
        self._covering = covering
        self._covered_by = _numbers(spaces.accounts, covering[-1], len(image.accounts))
        self._bodies = unpack(image.entries.bodies, len(self._keys))
        objects, holds = self._object_starts[-1], self._hold_starts[-1]
        if sum(self._bodies) != 2 * holds + objects:
            raise ValueError(f"the keys do not have {objects} objects and {holds} holds")
        allocated = image.allocations if isinstance(image, ImageWithDevices) else None
        self._objects = _ObjectRows(image.objects, image.pools, allocated=allocated)
        self._holds = _HoldRows(image.holds, image.pools)
        # The state changes its own accounts and labels.
        self._account_names = image.account_names
        self._accounts = dict(zip(image.account_names, image.accounts, strict=False))
        self._labels = dict(image.labels)

    def read(self, space: Namespace, row: int) -> None:
        """Set all mappings and indexes of a namespace."""
        entries = dict[str, Entry]()
        draws, members = dict[str, Draw](), dict[str, dict[str, None]]()
        objects = iter(self._objects.rows(*self._object_starts[row : row + 2]))
        holds = self._holds.rows(*self._hold_starts[row : row + 2])
        held = iter(holds)
        first, end = self._entries[row : row + 2]
        for key, bodies in zip(self._keys[first:end], self._bodies[first:end], strict=True):
            if bodies == _ONE_HOLD:
                hold = next(held)
                entry = Entry(None, (hold,), hold.demand, hold.root, hold.traits)
            elif bodies == _ONE_OBJECT:
                stored = next(objects)
                entry = Entry(stored, (), stored.demand, stored.root, stored.traits)
            else:
                committed = next(objects) if bodies % 2 else None
                entry = entry_of(committed, tuple(islice(held, bodies // 2)))
            entries[key] = entry
            if entry.root:
                add_draw(draws, members, key, entry)
        first, end = self._covering[row : row + 2]
        names = tuple([self._account_names[at] for at in self._covered_by[first:end]])
        space.entries, space.draws, space.members = entries, draws, members
        space.owners, space.accounts = open_creations(holds), names
        space.placed = self._placed.get(self._names[row], {})
        space.plan, space.selected, space.asked_only = plans(self._accounts, names, self._labels)


class _ObjectRows:
    """The committed objects of all namespaces."""

    def __init__(self, table: Objects, pools: Pools, *, allocated: Allocations | None) -> None:
        count = len(table.uids)
        self._uids = table.uids
        self._versions, self._times = unpack(table.versions, count), unpack(table.times, count)
        self._generations = unpack(table.generations, count)
        self._shapes = _numbers(table.shapes, count, len(table.shape_values))
        amounts, texts, traits = pools.amounts, pools.texts, pools.traits
        admitted = (None, *amounts)
        _check_shapes(table.shape_values, amounts, texts, traits, admitted)
        self._values = [
            (amounts[demand], texts[root], traits[own], admitted[part])
            for demand, root, own, part in table.shape_values
        ]
        self._devices = {} if allocated is None else _devices_by_row(allocated, count, admitted)

    def rows(self, first: int, end: int) -> list[Object]:
        """Return objects, those from row `first` up to `end`."""
        if first == end:
            return []
        values = self._values
        made = []
        for uid, version, time, generation, shape in zip(
            self._uids[first:end],
            self._versions[first:end],
            self._times[first:end],
            self._generations[first:end],
            self._shapes[first:end],
            strict=True,
        ):
            demand, root, traits, admitted = values[shape]
            made.append(Object(uid, version, demand, time, root, traits, generation, admitted))
        for row in range(first, end) if self._devices else ():
            if row in self._devices:
                devices, bound = self._devices[row]
                made[row - first] = replace(made[row - first], devices=devices, bound=bound)
        return made


class _HoldRows:
    """The holds of all namespaces."""

    def __init__(self, table: Holds, pools: Pools) -> None:
        count = len(table.uids)
        self._uids = table.uids
        self._bases, self._times = unpack(table.bases, count), unpack(table.times, count)
        self._raises = unpack(table.raises, count)
        self._shapes = _numbers(table.shapes, count, len(table.shape_values))
        amounts, texts, traits = pools.amounts, pools.texts, pools.traits
        _check_shapes(table.shape_values, amounts, texts, texts, texts, texts, traits)
        self._values = [
            (amounts[demand], texts[stamp], texts[owner], texts[actor], texts[root], traits[own])
            for demand, stamp, owner, actor, root, own in table.shape_values
        ]

    def rows(self, first: int, end: int) -> list[Hold]:
        """Return holds, those from row `first` up to `end`."""
        if first == end:
            return []
        values = self._values
        made = []
        for uid, base, time, raises, shape in zip(
            self._uids[first:end],
            self._bases[first:end],
            self._times[first:end],
            self._raises[first:end],
            self._shapes[first:end],
            strict=True,
        ):
            demand, stamp, owner, actor, root, traits = values[shape]
            made.append(Hold(uid, base, demand, time, stamp, owner, actor, raises, root, traits))
        return made


def _devices_by_row(
    table: Allocations, objects: int, bounds: Sequence[Amounts | None]
) -> dict[int, tuple[Devices, Amounts | None]]:
    """Return devices and bound by the row of their object. Raises ValueError."""
    count = len(table.devices)
    rows = _numbers(table.rows, count, objects)
    numbers = _numbers(table.bounds, count, len(bounds))
    return {
        row: (devices, bounds[number])
        for row, devices, number in zip(rows, table.devices, numbers, strict=True)
    }


def _starts(counts: Column, rows: int, total: int) -> list[int]:
    """Return the first row of each namespace in a table, and the end of the last one."""
    starts = [0, *accumulate(unpack(counts, rows))]
    if starts[-1] != total:
        raise ValueError(f"the namespaces have {starts[-1]} rows of a table of {total}")
    return starts


def _numbers(column: Column, rows: int, values: int) -> Sequence[int]:
    """Return a column of numbers of values. Raises ValueError when one has no value."""
    numbers = unpack(column, rows)
    if rows:
        _check(numbers, values)
    return numbers


def _check_shapes(shapes: Sequence[tuple[int, ...]], *pools: Sequence[Any]) -> None:
    """Check that shapes name values of the pools. Raises ValueError."""
    for column, pool in zip(zip(*shapes, strict=True), pools, strict=bool(shapes)):
        _check(column, len(pool))


def _check(numbers: Sequence[int], values: int) -> None:
    if min(numbers) < 0 or max(numbers) >= values:
        raise ValueError(f"there are numbers {min(numbers)} … {max(numbers)} of {values} values")
