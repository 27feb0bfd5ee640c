"""Device supply: the devices of the ResourceSlices of a cluster, as the scheduler uses them."""

from collections.abc import Iterable, Sequence

import msgspec

from ledger.kube.requests.confirmed_card_sizes import CARD_MEMORY_MAX
from ledger.kube.resource_claims.consumed_capacity import CapacityRule
from ledger.kube.resource_claims.device_classes import ClassMapping
from ledger.kube.resource_claims.dra_objects import ResourceSlice


class DeviceShape(msgspec.Struct, frozen=True):
    """The common properties of equal devices of one driver; `capacities` are sorted by name."""

    driver: str
    product: str = ""
    shared: bool = False
    capacities: tuple[CapacityRule, ...] = ()


class SupplyDevice(msgspec.Struct, frozen=True):
    """One device: `node` is empty for a device of several nodes, `uuid` if it names none."""

    driver: str
    pool: str
    name: str
    node: str
    uuid: str
    shape: DeviceShape


class DeviceSupply:
    """The devices of all slices, kept up to date by a watch. `version` rises at each change."""

    def __init__(self, mapping: ClassMapping, *, card_memory_max: int = CARD_MEMORY_MAX) -> None:
        """Begin without slices. No device counts above `card_memory_max` MiB."""
        self._mapping = mapping
        self.card_memory_max = card_memory_max
        self.version = 0
        self._slices: dict[str, ResourceSlice] = {}

    def take_slice(self, taken: ResourceSlice) -> None:
        """Store a slice, and drop the earlier slice of the same name."""
        self._slices[taken.metadata.name] = taken
        self.version += 1

    def drop_slice(self, name: str) -> None:
        """Remove a slice; an unknown name changes nothing."""
        if self._slices.pop(name, None) is not None:
            self.version += 1

    def relist(self, slices: Iterable[ResourceSlice]) -> None:
        """Replace all slices by those of a list."""
        self._slices = {taken.metadata.name: taken for taken in slices}
        self.version += 1

    def drivers(self) -> frozenset[str]:
        """Return the drivers that have slices."""
        return frozenset(taken.spec.driver for taken in self._slices.values())

    def devices(self, driver: str) -> Sequence[SupplyDevice]:
        """Return the devices of the complete pools of a driver, sorted by pool and name."""
        return ()

    def find(self, driver: str, pool: str, device: str) -> SupplyDevice | None:
        """Return an allocated device, also of an incomplete pool or an older generation."""
        return None

    def uuids(self, node: str) -> frozenset[str]:
        """Return the uuids of a node's devices, also those of incomplete pools."""
        return frozenset()
