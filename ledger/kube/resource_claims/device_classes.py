"""Device classes: the vendor and the drivers of the devices that a DeviceClass selects.

The mapping is data: the built-in file and the file of the setting `device_classes_file`.
"""

from enum import Enum
from functools import cached_property
from importlib import resources
from pathlib import Path
from typing import Annotated, Final

import msgspec
from msgspec import Meta

from ledger.kube.resource_claims.dra_objects import DeviceClass
from ledger.kube.resource_claims.selector_conditions import DeviceCondition, condition_of
from ledger.kube.vendors.vendors import NVIDIA, Vendor

FILE_BYTES_MAX: Final = 262_144
"""Largest file that is read."""

Name = Annotated[str, Meta(min_length=1, max_length=253)]


class BadDeviceClasses(ValueError):
    """A file of device classes is invalid; the text names the file, the field and the remedy."""


class DriverMapping(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, gc=False
):
    """A driver of GPUs: its vendor, and its names of attributes and capacities.

    The names have no domain, because a name without one belongs to the driver's domain. An empty
    name does not exist.
    """

    driver: Name
    vendor: Name
    uuid: str = "uuid"
    product: str = "productName"
    memory: str = "memory"
    cores: str = ""


class ClassEntry(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, gc=False):
    """A class that is mapped by name: the drivers whose devices it selects."""

    name: Name
    drivers: tuple[Name, ...]


class MappingFile(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="camel"
):
    """The content of a file of device classes."""

    drivers: tuple[DriverMapping, ...] = ()
    classes: tuple[ClassEntry, ...] = ()
    other_drivers: tuple[Name, ...] = ()


class NotAGpu(Enum):
    """The class selects no GPUs."""

    NOT_A_GPU = "not a GPU"


NOT_A_GPU: Final = NotAGpu.NOT_A_GPU


class MappedClass(msgspec.Struct, frozen=True):
    """A class of GPUs; `condition` holds for all devices that it selects."""

    name: str
    drivers: tuple[DriverMapping, ...]
    condition: DeviceCondition


class Unmapped(msgspec.Struct, frozen=True):
    """A class that may select GPUs and is not mapped; `why` is the end of a sentence about it."""

    name: str
    why: str


class ClassMapping(msgspec.Struct, frozen=True, kw_only=True, dict=True):
    """The mapping of one service. `other_classes` select no GPUs."""

    vendors: tuple[Vendor, ...] = (NVIDIA,)
    drivers: tuple[DriverMapping, ...] = ()
    classes: tuple[ClassEntry, ...] = ()
    other_drivers: tuple[str, ...] = ()
    other_classes: tuple[str, ...] = ()

    @cached_property
    def by_driver(self) -> dict[str, DriverMapping]:
        """The drivers by name."""
        return {driver.driver: driver for driver in self.drivers}

    @cached_property
    def by_class(self) -> dict[str, ClassEntry]:
        """The classes that are mapped by name."""
        return {entry.name: entry for entry in self.classes}

    def of(self, device_class: DeviceClass | None, name: str) -> MappedClass | Unmapped | NotAGpu:
        """Return the mapping of a class by its name; `device_class` is None if it is missing."""
        if name in self.other_classes:
            return NOT_A_GPU
        if device_class is None:
            return Unmapped(name, "does not exist")
        condition = condition_of(device_class.spec.selectors)
        entry = self.by_class.get(name)
        if entry is not None:
            drivers = tuple(self.by_driver[driver] for driver in entry.drivers)
            return MappedClass(name, drivers, condition)
        return self._by_condition(name, condition)

    def _by_condition(
        self, name: str, condition: DeviceCondition
    ) -> MappedClass | Unmapped | NotAGpu:
        if not condition.driver:
            return Unmapped(name, "does not select one driver by device.driver")
        driver = self.by_driver.get(condition.driver)
        if driver is not None:
            return MappedClass(name, (driver,), condition)
        if condition.driver in self.other_drivers:
            return NOT_A_GPU
        return Unmapped(name, f"selects the driver {condition.driver}, which is not mapped")


def class_mapping(
    path: Path | None = None,
    *,
    vendors: tuple[Vendor, ...] = (NVIDIA,),
    other_classes: tuple[str, ...] = (),
) -> ClassMapping:
    """Return the built-in mapping with that of a file. Raises BadDeviceClasses."""
    built_in = resources.files(__package__).joinpath("builtin", "drivers.yaml").read_bytes()
    files = [msgspec.yaml.decode(built_in, type=MappingFile)]
    if path is not None:
        files.append(msgspec.yaml.decode(path.read_bytes(), type=MappingFile))
    return ClassMapping(
        vendors=vendors,
        drivers=tuple(driver for file in files for driver in file.drivers),
        classes=tuple(entry for file in files for entry in file.classes),
        other_drivers=tuple(name for file in files for name in file.other_drivers),
        other_classes=other_classes,
    )
