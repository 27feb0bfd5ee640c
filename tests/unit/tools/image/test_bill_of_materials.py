"""The bill of materials lists each package and file, and is valid CycloneDX."""

import hashlib
import json
from pathlib import Path
from typing import Any

from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator

from tools.image.bill_of_materials import bill, debian_packages, python_package, single_file

STATUS = """Package: libssl3
Status: install ok installed
Architecture: amd64
Version: 3.0.17-1~deb12u2
Description: a library
 with a second line

Package: mawk
Status: deinstall ok config-files
Architecture: amd64
Version: 1.3.4

Package: tzdata
Status: install ok installed
Architecture: all
Version: 1:2025b+x
"""
WHEELS: dict[str, Any] = {
    "metadata": {"tools": {"components": [{"type": "application", "name": "cyclonedx-py"}]}},
    "components": [
        {"type": "library", "bom-ref": "aiohttp==3.14.5", "name": "aiohttp", "version": "3.14.5"}
    ],
    "dependencies": [{"ref": "aiohttp==3.14.5"}],
}


def invalid(document: dict[str, Any]) -> str:
    """Return the faults that the published schema finds."""
    fault = JsonStrictValidator(SchemaVersion.V1_6).validate_str(json.dumps(document))
    return str(fault or "")


def test_installed_packages_of_debian_are_components() -> None:
    assert [component["purl"] for component in debian_packages(STATUS)] == [
        "pkg:deb/debian/libssl3@3.0.17-1~deb12u2?arch=amd64",
        "pkg:deb/debian/tzdata@1%3A2025b%2Bx?arch=all",
    ]


def test_packages_can_be_selected_by_name() -> None:
    names = [component["name"] for component in debian_packages(STATUS, {"tzdata"})]
    assert names == ["tzdata"]


def test_a_single_file_has_its_hash(tmp_path: Path) -> None:
    (tmp_path / "nats-server").write_bytes(b"binary")
    (described,) = single_file("nats-server", "2.15.1", tmp_path / "nats-server")["hashes"]
    assert described == {"alg": "SHA-256", "content": hashlib.sha256(b"binary").hexdigest()}


def test_the_bill_lists_all_and_is_valid(tmp_path: Path) -> None:
    (tmp_path / "libvgpu.so").write_bytes(b"library")
    file = single_file("x.so", "1", tmp_path / "libvgpu.so")
    components = [*debian_packages(STATUS), python_package("gpuledger", "0.1.0"), file]
    made = bill(("gpuledger", "0.1.0"), WHEELS, components)
    assert [component["name"] for component in made["components"]] == [
        "aiohttp",
        "x.so",
        "libssl3",
        "tzdata",
        "gpuledger",
    ]
    assert made["metadata"]["component"]["name"] == "gpuledger"
    assert invalid(made) == ""


def test_a_bill_without_a_name_is_invalid() -> None:
    made = bill(("gpuledger", "0.1.0"), {}, [{"type": "library", "bom-ref": "x", "version": "1"}])
    assert "name" in invalid(made)
