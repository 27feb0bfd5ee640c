"""Check that functions.toml classifies each function of the driver's header.

`python tools/check_function_classes.py HEADER` fails and lists the functions that are in no class
or in two. It first lists functions of a newer toolkit that seem to allocate or launch, because they
may need hooks. The others match a pattern, or need an entry.
"""

import os
import re
import sys
import tomllib
from collections.abc import Iterable
from fnmatch import fnmatchcase
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import driver_api

_SUSPICIOUS = re.compile(
    "Alloc|Launch|Create|Instantiate|Import|Map|Reserve|Retain|Load|Open|Pool|Resource|Upload"
    "|Free|Destroy|Release|Unmap|Unload|Trim|Close|MemGetInfo|TotalMem|GetProcAddress|ExportTable"
)


def suspicious(name: str) -> bool:
    """Return whether a function seems, by its name, to allocate or launch, or to undo that."""
    return _SUSPICIOUS.search(name) is not None


def classes() -> dict[str, list[str]]:
    """Return the classes of each name or pattern of functions.toml."""
    table = tomllib.loads((Path(__file__).parent / "functions.toml").read_text())
    by_name: dict[str, list[str]] = {}
    for kind, names in {**table["hooked"], **table["forwarded"]}.items():
        for name in names:
            by_name.setdefault(name, []).append(kind)
    return by_name


def unclassified(names: Iterable[str]) -> list[str]:
    """Return the names without a class. A pattern does not classify a suspicious name."""
    written = classes()
    patterns = [entry for entry in written if "*" in entry]
    return [
        name
        for name in sorted(names)
        if name not in written
        and (suspicious(name) or not any(fnmatchcase(name, pattern) for pattern in patterns))
    ]


def complaints(header: Path) -> list[str]:
    """Return one line for each problem."""
    names = set(driver_api.prototypes(header))
    missing = unclassified(names)
    return [
        *(f"{name}: looks as if it allocated or launched" for name in missing if suspicious(name)),
        *(f"{name}: new" for name in missing if not suspicious(name)),
        *(f"{name}: in {kinds}" for name, kinds in classes().items() if len(kinds) > 1),
    ]


def main(header: Path) -> int:
    """Print the problems and return the exit status."""
    problems = complaints(header)
    for line in problems:
        print(line, file=sys.stderr)
    if problems:
        print(f"{len(problems)} to classify in vgpu_native/tools/functions.toml", file=sys.stderr)
    return 1 if problems else 0


if __name__ == "__main__":
    os.environ.setdefault("CC", "cc")
    sys.exit(main(Path(sys.argv[1])))
