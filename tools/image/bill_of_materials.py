"""Bill of materials of an image, in CycloneDX 1.6 as JSON; a stage of `deploy/Dockerfile` runs it.

It joins the Python packages, of which `cyclonedx-py environment` writes a bill, the Debian
packages of the status file of dpkg, and single files such as nats-server. It needs only Python's
own library, and writes no time and no random number, so that the same image has the same bill.

Sources: https://cyclonedx.org/docs/1.6/json/ for the bill, deb-control(5) for the status file,
https://github.com/package-url/purl-spec for package URLs.
"""

import argparse
import hashlib
import json
from collections.abc import Collection, Iterator
from email.parser import HeaderParser
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

INSTALLED: Final = "install ok installed"


def debian_packages(status: str, only: Collection[str] = ()) -> Iterator[dict[str, Any]]:
    """Yield a component for each installed package of a status file; `only` selects by name."""
    for paragraph in status.strip().split("\n\n"):
        fields = HeaderParser().parsestr(paragraph)
        name, version = fields["Package"], fields["Version"]
        if fields["Status"] != INSTALLED or (only and name not in only):
            continue
        purl = (
            f"pkg:deb/debian/{quote(name)}@{quote(version, safe='')}?arch={fields['Architecture']}"
        )
        yield {
            "type": "library",
            "bom-ref": purl,
            "name": name,
            "version": version,
            "purl": purl,
        }


def single_file(name: str, version: str, path: Path) -> dict[str, Any]:
    """Return the component of one file, with its hash."""
    return {
        "type": "file",
        "bom-ref": f"file:{name}@{version}",
        "name": name,
        "version": version,
        "hashes": [{"alg": "SHA-256", "content": hashlib.sha256(path.read_bytes()).hexdigest()}],
    }


def python_package(name: str, version: str) -> dict[str, Any]:
    """Return the component of our own package, which is not yet there when cyclonedx-py runs."""
    purl = f"pkg:pypi/{quote(name)}@{quote(version)}"
    return {"type": "application", "bom-ref": purl, "name": name, "version": version, "purl": purl}


def bill(
    image: tuple[str, str], wheels: dict[str, Any], components: list[dict[str, Any]]
) -> dict[str, Any]:
    """Return the bill of an image, given as name and version: the wheels and more components."""
    name, version = image
    container = {
        "type": "container",
        "bom-ref": f"{name}@{version}",
        "name": name,
        "version": version,
    }
    everything = [*wheels.get("components", []), *components]
    return {
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {**wheels.get("metadata", {}), "component": container},
        "components": sorted(everything, key=lambda component: str(component["bom-ref"])),
        "dependencies": wheels.get("dependencies", []),
    }


def main() -> None:
    """Write the bill of the image that the arguments describe."""
    parser = argparse.ArgumentParser(description="Write the bill of materials of an image.")
    parser.add_argument("image", help="NAME@VERSION")
    parser.add_argument("output", type=Path)
    parser.add_argument("--wheels", type=Path, help="the bill that cyclonedx-py wrote")
    parser.add_argument("--status", type=Path, help="dpkg's status file")
    parser.add_argument("--only", nargs="*", default=[], help="of the status file, these packages")
    parser.add_argument("--package", action="append", default=[], help="NAME@VERSION, of Python")
    parser.add_argument("--file", action="append", default=[], help="NAME@VERSION=PATH")
    given = parser.parse_args()
    components = list(debian_packages(given.status.read_text(), given.only)) if given.status else []
    components += [python_package(*text.split("@")) for text in given.package]
    for text in given.file:
        described, _, path = text.partition("=")
        name, version = described.split("@")
        components.append(single_file(name, version, Path(path)))
    wheels = json.loads(given.wheels.read_text()) if given.wheels else {}
    name, version = given.image.split("@")
    made = bill((name, version), wheels, components)
    given.output.parent.mkdir(parents=True, exist_ok=True)
    given.output.write_text(json.dumps(made, indent=1, sort_keys=True) + "\n")


if __name__ == "__main__":
    main()
