"""Device supply: the devices of the ResourceSlices of a cluster, as kube-scheduler uses them.

A change of a slice costs time for its own devices only, unless it completes or breaks a pool. The
bound of a claim reads the shapes of devices, of which a cluster has few.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from itertools import islice
from typing import Final

from ledger.kube.requests.confirmed_card_sizes import CARD_MEMORY_MAX, DOUBTS_MAX
from ledger.kube.requests.quantities import MEBIBYTE
from ledger.kube.resource_claims.consumed_capacity import UNIT
from ledger.kube.resource_claims.device_classes import ClassMapping, DriverMapping
from ledger.kube.resource_claims.device_shapes import DeviceShape, shape_of
from ledger.kube.resource_claims.dra_objects import RESULTS_MAX, ResourceSlice
from ledger.kube.resource_claims.shape_counts import SHAPES_MAX, ShapeCounts
from ledger.kube.resource_claims.slice_pools import SlicePool, StoredSlice, SupplyDevice

SLICE_DEVICES_MAX: Final = 128
"""Most devices of one slice, the bound of the API server."""


class DeviceSupply:
    """The devices of all slices, kept up to date by a watch.

    `shapes_version` rises at each change that may change the bound of a claim. No device counts
    above `card_memory_max` MiB.
    """

    def __init__(self, mapping: ClassMapping, *, card_memory_max: int = CARD_MEMORY_MAX) -> None:
        """Begin without slices; `mapping` names the attributes and capacities of each driver."""
        self.card_memory_max = card_memory_max
        self.shapes_version = 0
        self._mapping = mapping
        self._seen: dict[str, tuple[str, str]] = {}
        self._pool_of: dict[str, tuple[str, str]] = {}
        self._pools: dict[str, dict[str, SlicePool]] = {}
        self._counts: dict[str, ShapeCounts] = {}
        self._interned: dict[DeviceShape, DeviceShape] = {}
        self._uses: Counter[DeviceShape] = Counter()
        self._cards: dict[str, Counter[tuple[str, str]]] = {}
        self._changed_nodes: dict[str, None] = {}

    def take_slice(self, taken: ResourceSlice) -> None:
        """Store a slice, which replaces the slice of the same name."""
        name = taken.metadata.name
        seen = taken.metadata.uid, taken.metadata.resource_version
        if all(seen) and self._seen.get(name) == seen:
            return
        stored = self._stored(taken)
        place = stored.driver, stored.pool
        if self._pool_of.get(name, place) != place:
            self.drop_slice(name)
        self._seen[name] = seen
        pool = self._pools.setdefault(stored.driver, {}).setdefault(stored.pool, SlicePool())
        if pool.slices.get(name) == stored:
            return
        self._pool_of[name] = place
        self._put(pool, stored.driver, name, stored)

    def drop_slice(self, name: str) -> None:
        """Remove a slice; an unknown name changes nothing."""
        self._seen.pop(name, None)
        place = self._pool_of.pop(name, None)
        if place is None:
            return
        driver, pool_name = place
        pools = self._pools[driver]
        self._put(pools[pool_name], driver, name, None)
        if not pools[pool_name].slices:
            del pools[pool_name]
        if not pools:
            del self._pools[driver], self._counts[driver]

    def relist(self, slices: Iterable[ResourceSlice]) -> None:
        """Replace all slices by those of a list."""
        listed = {taken.metadata.name: taken for taken in slices}
        for name in self._pool_of.keys() - listed.keys():
            self.drop_slice(name)
        for taken in listed.values():
            self.take_slice(taken)

    def shapes(self, driver: str) -> Sequence[DeviceShape]:
        """Return the shapes of a driver's devices, at most `SHAPES_MAX`, in no order."""
        counts = self._counts.get(driver)
        return () if counts is None else counts.shapes()

    def most(self, driver: str, shapes: Collection[DeviceShape]) -> int:
        """Return how many devices of these shapes one node may use, at most 32."""
        counts = self._counts.get(driver)
        return 0 if counts is None else min(RESULTS_MAX, counts.most(shapes))

    def find(self, driver: str, pool: str, device: str) -> SupplyDevice | None:
        """Return an allocated device, also of an incomplete pool or an older generation."""
        known = self._pools.get(driver, {}).get(pool)
        return None if known is None else known.find(device)

    def cards(self, node: str) -> dict[str, str]:
        """Return the driver of each card of a node's devices by uuid, also of incomplete pools.

        Of several drivers with one card, it is the first by name.
        """
        return dict(sorted(self._cards.get(node, ()), reverse=True))

    def take_changed_nodes(self) -> Sequence[str]:
        """Return the nodes whose cards may have changed since the last call, empty for no node."""
        changed, self._changed_nodes = tuple(self._changed_nodes), {}
        return changed

    def doubts(self) -> list[str]:
        """Return sentences about devices that count less than their slices announce."""
        most = self.card_memory_max * MEBIBYTE * UNIT
        doubts: list[str] = []
        for driver, counts in sorted(self._counts.items()):
            doubts += (
                f"a slice of {driver} on {node or 'several nodes'} announces a device of more than"
                f" {self.card_memory_max} MiB, which card_memory_max forbids: no device is charged"
                " more"
                for node, _ in islice(counts.beyond(most), DOUBTS_MAX)
            )
            if counts.number > SHAPES_MAX:
                doubts.append(
                    f"the slices of {driver} announce {counts.number} kinds of devices: the bounds"
                    f" of claims consider the {SHAPES_MAX} that most nodes have"
                )
        return doubts[:DOUBTS_MAX]

    def _put(self, pool: SlicePool, driver: str, name: str, stored: StoredSlice | None) -> None:
        if stored is not None:
            self._refer(stored, 1)
        old = pool.put(name, stored)
        if old is not None:
            self._refer(old, -1)
        counts = self._counts.setdefault(driver, ShapeCounts())
        if counts.settle(pool, name):
            self.shapes_version += 1

    def _stored(self, taken: ResourceSlice) -> StoredSlice:
        spec = taken.spec
        driver = spec.driver
        mapping = self._mapping.by_driver.get(driver)
        if mapping is None:
            mapping = DriverMapping(driver=driver, vendor="unknown")
        own: dict[DeviceShape, DeviceShape] = {}
        devices = []
        for device in islice(spec.devices or (), SLICE_DEVICES_MAX):
            shape, uuid = shape_of(device, mapping)
            shape = self._interned.get(shape) or own.setdefault(shape, shape)
            node = spec.node_name or device.node_name
            devices.append(SupplyDevice(driver, spec.pool.name, device.name, node, uuid, shape))
        count = spec.pool.resource_slice_count
        return StoredSlice(driver, spec.pool.name, spec.pool.generation, count, tuple(devices))

    def _refer(self, stored: StoredSlice, by: int) -> None:
        """Count the uses of shapes and cards, so that those of removed slices are forgotten."""
        for device in stored.devices:
            self._uses[device.shape] += by
            if self._uses[device.shape]:
                self._interned.setdefault(device.shape, device.shape)
            else:
                del self._uses[device.shape], self._interned[device.shape]
            if device.uuid:
                cards = self._cards.setdefault(device.node, Counter())
                card = device.uuid, device.driver
                cards[card] += by
                self._changed_nodes[device.node] = None
                if not cards[card]:
                    del cards[card]
                if not cards:
                    del self._cards[device.node]
