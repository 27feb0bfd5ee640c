"""Device classes: the drivers, and so the vendors, of the devices that a DeviceClass selects.

The mapping is data: the built-in file, and the file of the setting `device_classes_file`:

```yaml
drivers:
  - driver: gpu.example.com
    vendor: nvidia
classes:
  - name: any-gpu
    drivers: [gpu.example.com, gpu.nvidia.com]
otherDrivers: [nic.example.com]
```
"""

from collections.abc import Iterable
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

Name = Annotated[str, Meta(min_length=1, max_length=317)]
Names = Annotated[tuple[Name, ...], Meta(max_length=8)]


class BadDeviceClasses(ValueError):
    """A file of device classes is invalid; the text names the file, the field and the remedy."""


class DriverMapping(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, gc=False
):
    """A driver of GPUs: its vendor, and the names of its attributes and capacities.

    Of several names, the first that a device has counts. A name without a domain belongs to the
    domain of the driver. `uuid` is the attribute with the uuid of the card, and `product` that with
    the name of its type. `memory` is in bytes. `cores` is scaled so that a device has all cores of
    a card.
    """

    driver: Name
    vendor: Name
    uuid: Names = ("uuid",)
    product: Names = ("productName",)
    memory: Names = ("memory",)
    cores: Names = ("cores",)


class ClassEntry(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, gc=False):
    """A class that is mapped by its name: the drivers of GPUs whose devices it selects."""

    name: Name
    drivers: Annotated[tuple[Name, ...], Meta(min_length=1, max_length=64)]


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
    exists: bool = True


class ClassMapping(msgspec.Struct, frozen=True, kw_only=True, dict=True):
    """The mapping of one service. `other_drivers` and `other_classes` select no GPUs."""

    vendors: tuple[Vendor, ...] = (NVIDIA,)
    drivers: tuple[DriverMapping, ...] = ()
    classes: tuple[ClassEntry, ...] = ()
    other_drivers: frozenset[str] = frozenset()
    other_classes: frozenset[str] = frozenset()

    @cached_property
    def by_driver(self) -> dict[str, DriverMapping]:
        """The drivers of GPUs by name."""
        return {driver.driver: driver for driver in self.drivers}

    @cached_property
    def by_class(self) -> dict[str, ClassEntry]:
        """The classes that are mapped by name."""
        return {entry.name: entry for entry in self.classes}

    @cached_property
    def by_extended_resource(self) -> dict[str, Vendor]:
        """The vendors by the extended resource that counts their cards."""
        return {vendor.count: vendor for vendor in self.vendors if vendor.count}

    def of(self, device_class: DeviceClass | None, name: str) -> MappedClass | Unmapped | NotAGpu:
        """Return the mapping of the class `name`; `device_class` is None if it does not exist."""
        if name in self.other_classes:
            return NOT_A_GPU
        if device_class is None:
            return Unmapped(name, "does not exist", exists=False)
        condition = condition_of(device_class.spec.selectors)
        entry = self.by_class.get(name)
        if entry is not None:
            drivers = tuple(self.by_driver[driver] for driver in entry.drivers)
            return MappedClass(name, drivers, condition)
        vendor = self.by_extended_resource.get(device_class.spec.extended_resource_name)
        return self._by_drivers(name, condition, vendor)

    def _by_drivers(
        self, name: str, condition: DeviceCondition, vendor: Vendor | None
    ) -> MappedClass | Unmapped | NotAGpu:
        """Return the mapping by the drivers, of which unknown ones are taken for the vendor's."""
        if condition.drivers is None:
            return Unmapped(name, "does not name its driver by device.driver == '…'")
        drivers: list[DriverMapping] = []
        for driver in sorted(condition.drivers - self.other_drivers):
            known = self.by_driver.get(driver)
            if known is None and vendor is None:
                return Unmapped(name, f"selects the driver {driver}, which is not mapped")
            if known is not None:
                drivers.append(known)
            elif vendor is not None:
                drivers.append(DriverMapping(driver=driver, vendor=vendor.name))
        return MappedClass(name, tuple(drivers), condition) if drivers else NOT_A_GPU


def class_mapping(
    path: Path | None = None,
    *,
    vendors: tuple[Vendor, ...] = (NVIDIA,),
    other_classes: Iterable[str] = (),
) -> ClassMapping:
    """Return the built-in mapping with that of a file, which overrides it. Raises BadDeviceClasses.

    `other_classes` are the names of classes that select no GPUs.
    """
    own = MappingFile() if path is None else _load(path)
    built_in = _decode(
        resources.files(__package__).joinpath("builtin", "drivers.yaml").read_bytes()
    )
    others = frozenset(own.other_drivers)
    drivers = {driver.driver: driver for driver in (*built_in.drivers, *own.drivers)}
    mapping = ClassMapping(
        vendors=vendors,
        drivers=tuple(driver for name, driver in drivers.items() if name not in others),
        classes=own.classes,
        other_drivers=others | (frozenset(built_in.other_drivers) - drivers.keys()),
        other_classes=frozenset(other_classes),
    )
    problem = _problem(own, mapping)
    if problem:
        raise BadDeviceClasses(f"{path}: {problem}")
    return mapping


def _load(path: Path) -> MappingFile:
    try:
        with path.open("rb") as file:
            content = file.read(FILE_BYTES_MAX + 1)
    except OSError as error:
        raise BadDeviceClasses(
            f"{path}: cannot be read ({error.strerror}); name a YAML file"
        ) from error
    if len(content) > FILE_BYTES_MAX:
        raise BadDeviceClasses(
            f"{path}: is larger than {FILE_BYTES_MAX} bytes; list drivers and classes only"
        )
    try:
        return _decode(content)
    except msgspec.DecodeError as error:
        problem = " ".join(str(error).split())
        raise BadDeviceClasses(
            f"{path}: {problem}; write the lists drivers, classes and otherDrivers"
        ) from error


def _decode(content: bytes) -> MappingFile:
    return msgspec.yaml.decode(content, type=MappingFile)


def _problem(own: MappingFile, mapping: ClassMapping) -> str:
    """Return the problem of a file whose single fields are valid, "" if there is none."""
    lists = {
        "drivers": [driver.driver for driver in own.drivers] + list(own.other_drivers),
        "classes": [entry.name for entry in own.classes],
    }
    for field, names in lists.items():
        for name in names:
            if names.count(name) > 1:
                return f"$.{field}: {name} is given twice; name it once"
    for number, entry in enumerate(own.classes):
        for driver in entry.drivers:
            if driver not in mapping.by_driver:
                return (
                    f"$.classes[{number}].drivers: {driver} is not a driver of GPUs; add it to"
                    " drivers"
                )
        if entry.name in mapping.other_classes:
            return (
                f"$.classes[{number}].name: {entry.name} is in other_device_classes as well;"
                " remove it from one of them"
            )
    return ""
