"""Device classes: a class of GPUs is mapped or reported, and never free without a word."""

from pathlib import Path

import pytest
from support.claims.device_supplies import device_class

from ledger.kube.resource_claims.device_classes import (
    FILE_BYTES_MAX,
    NOT_A_GPU,
    BadDeviceClasses,
    ClassMapping,
    MappedClass,
    NotAGpu,
    Unmapped,
    class_mapping,
)

BUILT_IN = class_mapping()
Mapped = MappedClass | Unmapped | NotAGpu


def mapped(*expressions: str, extended: str = "", within: ClassMapping = BUILT_IN) -> Mapped:
    return within.of(device_class("k", *expressions, extended=extended), "k")


def drivers(result: Mapped) -> list[tuple[str, str]]:
    assert isinstance(result, MappedClass), result
    return [(each.driver, each.vendor) for each in result.drivers]


def test_classes_of_known_drivers_are_mapped() -> None:
    nvidia = "device.driver == 'gpu.nvidia.com' && device.attributes['gpu.nvidia.com'].type =="
    assert drivers(mapped(f"{nvidia} 'gpu'")) == [("gpu.nvidia.com", "nvidia")]
    assert drivers(mapped(f"{nvidia} 'mig'")) == [("gpu.nvidia.com", "nvidia")]
    hami = 'device.driver == "hami-core-gpu.project-hami.io"'
    assert drivers(mapped(hami)) == [("hami-core-gpu.project-hami.io", "nvidia")]
    both = "device.driver == 'gpu.amd.com' || device.driver == 'gpu.nvidia.com'"
    assert drivers(mapped(both)) == [("gpu.amd.com", "amd"), ("gpu.nvidia.com", "nvidia")]


def test_classes_of_other_devices_are_not_gpus() -> None:
    assert mapped("device.driver == 'dra.net'") is NOT_A_GPU
    assert mapped("device.driver == 'a'", "device.driver == 'b'") is NOT_A_GPU
    listed = class_mapping(other_classes=["k"])
    assert mapped("device.driver == 'gpu.nvidia.com'", within=listed) is NOT_A_GPU
    assert listed.of(None, "k") is NOT_A_GPU


@pytest.mark.parametrize(
    ("expressions", "why"),
    [
        ((), "does not name its driver"),
        (("true",), "does not name its driver"),
        (("device.driver == 'dra.net' || true",), "does not name its driver"),
        (("device.driver == 'gpu.acme.com'",), "selects the driver gpu.acme.com"),
        (("device.driver in ['dra.net', 'gpu.acme.com']",), "selects the driver gpu.acme.com"),
    ],
)
def test_a_class_that_may_select_gpus_is_unmapped(expressions: tuple[str, ...], why: str) -> None:
    result = mapped(*expressions)
    assert isinstance(result, Unmapped)
    assert why in result.why


def test_a_missing_class_is_unmapped() -> None:
    assert BUILT_IN.of(None, "k") == Unmapped("k", "does not exist", exists=False)


def test_an_extended_resource_of_a_vendor_maps_the_class() -> None:
    unknown = "device.driver == 'gpu.acme.com'"
    assert drivers(mapped(unknown, extended="nvidia.com/gpu")) == [("gpu.acme.com", "nvidia")]
    assert isinstance(mapped(unknown, extended="acme.com/gpu"), Unmapped)
    assert mapped("device.driver == 'dra.net'", extended="nvidia.com/gpu") is NOT_A_GPU


def load(tmp_path: Path, text: str, **settings: list[str]) -> ClassMapping:
    path = tmp_path / "classes.yaml"
    path.write_text(text)
    return class_mapping(path, other_classes=settings.get("other_classes", ()))


def test_a_file_adds_and_overrides_drivers_and_classes(tmp_path: Path) -> None:
    own = load(
        tmp_path,
        """
drivers:
- {driver: gpu.acme.com, vendor: nvidia, memory: [vram], cores: []}
- {driver: dra.net, vendor: nvidia}
classes:
- {name: k, drivers: [gpu.acme.com, gpu.nvidia.com]}
otherDrivers: [gpu.intel.com]
""",
    )
    assert own.by_driver["gpu.acme.com"].memory == ("vram",)
    assert drivers(mapped("true", within=own)) == [
        ("gpu.acme.com", "nvidia"),
        ("gpu.nvidia.com", "nvidia"),
    ]
    other = device_class("l", "device.driver == 'dra.net'")
    assert drivers(own.of(other, "l")) == [("dra.net", "nvidia")]
    assert own.of(device_class("l", "device.driver == 'gpu.intel.com'"), "l") is NOT_A_GPU


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("drivers: [{driver: a}]", "vendor"),
        ("driver: []", "driver"),
        ("classes: [{name: k, drivers: []}]", "length"),
        ("classes: [{name: k, drivers: [gpu.acme.com]}]", "$.classes[0].drivers: gpu.acme.com"),
        ("otherDrivers: [a]\ndrivers: [{driver: a, vendor: b}]", "a is given twice"),
        ("classes: [{name: other, drivers: [gpu.amd.com]}]", "other_device_classes"),
        ("[", "write the lists"),
    ],
)
def test_an_invalid_file_is_refused_with_its_field(tmp_path: Path, text: str, problem: str) -> None:
    with pytest.raises(BadDeviceClasses) as error:
        load(tmp_path, text, other_classes=["other"])
    assert problem in str(error.value)
    assert str(tmp_path) in str(error.value)


def test_a_missing_and_a_large_file_are_refused(tmp_path: Path) -> None:
    with pytest.raises(BadDeviceClasses, match="cannot be read"):
        class_mapping(tmp_path / "none.yaml")
    with pytest.raises(BadDeviceClasses, match="is larger than"):
        load(tmp_path, "#" * (FILE_BYTES_MAX + 1))
