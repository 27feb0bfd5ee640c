"""Slice pools: the ResourceSlices of one pool, and whether kube-scheduler allocates from them.

Only the slices of the highest generation count, if all of them exist and no two devices have the
same name.
"""

from collections import Counter
from collections.abc import Iterable
from typing import TypeVar

import msgspec

from ledger.kube.resource_claims.device_shapes import DeviceShape

Key = TypeVar("Key")


class SupplyDevice(msgspec.Struct, frozen=True):
    """One device; `node` is empty for a device of several nodes, `uuid` if it names no card."""

    driver: str
    pool: str
    name: str
    node: str
    uuid: str
    shape: DeviceShape


class StoredSlice(msgspec.Struct, frozen=True):
    """The part of a slice that the supply uses; `slices` is the number of slices of its pool."""

    driver: str
    pool: str
    generation: int
    slices: int
    devices: tuple[SupplyDevice, ...]


class SlicePool:
    """The slices of one pool, by the names of their objects.

    `current` are those of the highest generation. `counted` belongs to the supply: the slices whose
    devices it counts at present, all of `generation_counted`.
    """

    __slots__ = (
        "_by_device",
        "_expected",
        "_generations",
        "_names",
        "counted",
        "current",
        "generation",
        "generation_counted",
        "slices",
    )

    def __init__(self) -> None:
        self.slices: dict[str, StoredSlice] = {}
        self.current: dict[str, StoredSlice] = {}
        self.counted: dict[str, StoredSlice] = {}
        self.generation = self.generation_counted = -1
        self._generations: Counter[int] = Counter()
        self._names: Counter[str] = Counter()
        self._expected: Counter[int] = Counter()
        self._by_device: dict[str, SupplyDevice] | None = None

    def put(self, name: str, taken: StoredSlice | None) -> StoredSlice | None:
        """Store a slice or, with None, remove it. Return the earlier slice of this name."""
        self._by_device = None
        old = self.slices.pop(name, None)
        if old is not None:
            _change(self._generations, (old.generation,), -1)
        if taken is not None:
            self.slices[name] = taken
            _change(self._generations, (taken.generation,), 1)
        highest = max(self._generations, default=-1)
        if highest != self.generation:
            self._begin(highest)
            return old
        if old is not None and self.current.pop(name, None) is not None:
            self._count(old, -1)
        if taken is not None and taken.generation == highest:
            self.current[name] = taken
            self._count(taken, 1)
        return old

    def is_complete(self) -> bool:
        """Return whether kube-scheduler allocates from the pool.

        If slices give different numbers of slices, one that is right suffices.
        """
        complete = self._expected[len(self.current)] > 0
        return complete and len(self._names) == self._names.total()

    def find(self, device: str) -> SupplyDevice | None:
        """Return a device of the highest generation that has it."""
        if self._by_device is None:
            ascending = sorted(self.slices.values(), key=lambda stored: stored.generation)
            self._by_device = {item.name: item for stored in ascending for item in stored.devices}
        return self._by_device.get(device)

    def _begin(self, generation: int) -> None:
        """Make another generation the current one."""
        self.generation = generation
        self.current = {
            name: stored for name, stored in self.slices.items() if stored.generation == generation
        }
        self._names.clear()
        self._expected.clear()
        for stored in self.current.values():
            self._count(stored, 1)

    def _count(self, stored: StoredSlice, by: int) -> None:
        _change(self._names, (device.name for device in stored.devices), by)
        _change(self._expected, (stored.slices,), by)


def _change(counter: Counter[Key], keys: Iterable[Key], by: int) -> None:
    """Add to the counts of keys, and remove those that are 0."""
    for key in keys:
        counter[key] += by
        if not counter[key]:
            del counter[key]
