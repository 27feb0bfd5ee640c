"""Vendor files: YAML files with a list of further vendors, in the fields of `vendors.Vendor`.

```yaml
- name: acme
  count: acme.example/npu
  memory: acme.example/npu-memory
  memoryFactor: 1024
```
"""

from pathlib import Path
from typing import Final

import msgspec

from ledger.kube.vendors.vendors import Vendor

FILE_BYTES_MAX: Final = 262_144
"""Largest file that is read."""


class BadVendors(ValueError):
    """A file of vendors is invalid; the text names the file, the field and the remedy."""


def load(path: Path) -> tuple[Vendor, ...]:
    """Return the vendors in a file. Raises BadVendors."""
    try:
        with path.open("rb") as file:
            content = file.read(FILE_BYTES_MAX + 1)
    except OSError as error:
        raise BadVendors(f"{path}: cannot be read ({error.strerror}); name a YAML file") from error
    if len(content) > FILE_BYTES_MAX:
        raise BadVendors(f"{path}: is larger than {FILE_BYTES_MAX} bytes; list vendors only")
    try:
        vendors = msgspec.yaml.decode(content, type=tuple[Vendor, ...])
    except msgspec.DecodeError as error:
        problem = " ".join(str(error).split())
        raise BadVendors(f"{path}: {problem}; write a list of vendors") from error
    names: set[str] = set()
    for number, vendor in enumerate(vendors):
        problem = f"the name {vendor.name} is given twice" if vendor.name in names else ""
        problem = problem or _problem(vendor)
        if problem:
            raise BadVendors(f"{path}: $[{number}]: {problem}")
        names.add(vendor.name)
    return vendors


def _problem(vendor: Vendor) -> str:
    """Return the problem of a vendor whose single fields are valid, "" if there is none."""
    names, steps = vendor.names(), list(vendor.memory_steps)
    every = (*names, vendor.priority) if vendor.priority else names
    problems = {
        "names no resource; give count, or memory or cores of a shared card": not names,
        "uses one resource twice; each of its fields names another one": (
            len(set(every)) < len(every)
        ),
        f"percentage {vendor.percentage} is charged as memory; name that as well": (
            bool(vendor.percentage) and not vendor.memory
        ),
        f"memorySteps {steps} must be ascending": steps != sorted(set(steps)),
        f"defaultCores {vendor.default_cores} is more than wholeCores {vendor.whole_cores}": (
            0 < vendor.whole_cores < vendor.default_cores
        ),
        "completed writes down the count; name that resource": (
            vendor.completed and not vendor.count
        ),
    }
    return next((text for text, wrong in problems.items() if wrong), "")
