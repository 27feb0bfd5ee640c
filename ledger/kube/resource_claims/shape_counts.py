"""Shape counts: how many devices of each shape the nodes of one driver may use.

Equal nodes have one profile, so the largest number of devices of a node is found without reading
all nodes.
"""

import heapq
from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from typing import Final

from ledger.kube.resource_claims.device_shapes import DeviceShape
from ledger.kube.resource_claims.slice_pools import SlicePool, StoredSlice

SHAPES_MAX: Final = 128
"""Most shapes of one driver that a bound considers, those of the most nodes first.

Without it, one node could make each review slow by announcing devices of many sizes.
"""

ANY_NODE: Final = ""
"""The node of devices that several nodes may use."""

Profile = frozenset[tuple[DeviceShape, int]]


class ShapeCounts:
    """The counted devices of one driver, by shape and node."""

    def __init__(self) -> None:
        self._nodes: dict[str, Counter[DeviceShape]] = {}
        self._profiles: Counter[Profile] = Counter()
        self._spread: Counter[DeviceShape] = Counter()
        self._considered: tuple[DeviceShape, ...] | None = None
        self._changed = False

    def settle(self, pool: SlicePool, name: str) -> bool:
        """Count the slice `name` of a pool again, or all if the pool became complete or incomplete.

        Return whether the bound of a claim may have changed.
        """
        self._changed = False
        complete = pool.is_complete()
        if complete and pool.generation == pool.generation_counted:
            old, new = pool.counted.pop(name, None), pool.current.get(name)
            self._count([old] if old is not None else [], [new] if new is not None else [])
            if new is not None:
                pool.counted[name] = new
        else:
            current = pool.current if complete else {}
            self._count(pool.counted.values(), current.values())
            pool.counted = dict(current)
            pool.generation_counted = pool.generation if complete else -1
        if self._changed:
            self._considered = None
        return self._changed

    def shapes(self) -> tuple[DeviceShape, ...]:
        """Return the considered shapes, at most `SHAPES_MAX`, in no order."""
        if self._considered is None:
            shapes = tuple(self._spread)
            if len(shapes) > SHAPES_MAX:
                shapes = tuple(heapq.nlargest(SHAPES_MAX, shapes, key=self._weight))
            self._considered = shapes
        return self._considered

    @property
    def number(self) -> int:
        """Return the number of shapes, those that are not considered included."""
        return len(self._spread)

    def beyond(self, memory: int) -> Iterator[tuple[str, DeviceShape]]:
        """Yield the shapes with more billionths of memory than that, each with one of its nodes."""
        for shape in self._spread:
            if shape.memory is not None and shape.memory.value > memory:
                yield next(node for node, has in self._nodes.items() if shape in has), shape

    def most(self, shapes: Collection[DeviceShape]) -> int:
        """Return the largest number of devices of these shapes that one node may use."""
        wanted = frozenset(shapes)

        def number(profile: Iterable[tuple[DeviceShape, int]]) -> int:
            return sum(count for shape, count in profile if shape in wanted)

        shared = number(self._nodes.get(ANY_NODE, {}).items())
        return shared + max(map(number, self._profiles), default=0)

    def _weight(self, shape: DeviceShape) -> tuple[int, int]:
        return self._spread[shape], sum(rule.value for rule in shape.capacities)

    def _count(self, old: Iterable[StoredSlice], new: Iterable[StoredSlice]) -> None:
        changes: dict[str, Counter[DeviceShape]] = {}
        for slices, by in ((old, -1), (new, 1)):
            for stored in slices:
                for device in stored.devices:
                    changes.setdefault(device.node, Counter())[device.shape] += by
        for node, change in changes.items():
            self._apply(node, {shape: by for shape, by in change.items() if by})

    def _apply(self, node: str, change: dict[DeviceShape, int]) -> None:
        if not change:
            return
        counts = self._nodes.setdefault(node, Counter())
        if node != ANY_NODE:
            self._note(counts, -1)
        for shape, by in change.items():
            had = counts[shape]
            counts[shape] += by
            if not counts[shape]:
                del counts[shape]
            spread = (counts[shape] > 0) - (had > 0)
            self._spread[shape] += spread
            if not self._spread[shape]:
                del self._spread[shape]
        if node != ANY_NODE:
            self._note(counts, 1)
        else:
            self._changed = True
        if not counts:
            del self._nodes[node]

    def _note(self, counts: Counter[DeviceShape], by: int) -> None:
        """Count a node's profile; the first and the last node of a profile change bounds."""
        if not counts:
            return
        profile = frozenset(counts.items())
        self._profiles[profile] += by
        if not self._profiles[profile]:
            del self._profiles[profile]
            self._changed = True
        elif self._profiles[profile] == by:
            self._changed = True
