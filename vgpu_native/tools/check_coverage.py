"""Check that functions.toml says how each function of the driver's header is treated.

`python tools/check_coverage.py HEADER` fails and lists functions that are in no class, and those
that are in two. Of a newer toolkit's functions, those that look as if they allocated or launched
are listed first: they may have to be hooked. Others are matched by a pattern or added to the names.
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
    """Return whether a name looks as if the function allocated, launched, or undid that."""
    return _SUSPICIOUS.search(name) is not None


def classes() -> dict[str, list[str]]:
    """Return for each name or pattern of functions.toml the classes that it stands in."""
    table = tomllib.loads((Path(__file__).parent / "functions.toml").read_text())
    found: dict[str, list[str]] = {}
    for kind, names in {**table["hooked"], **table["forwarded"]}.items():
        for name in names:
            found.setdefault(name, []).append(kind)
    return found


def unclassified(names: Iterable[str]) -> list[str]:
    """Return the names that stand nowhere. A pattern does not count for a suspicious one."""
    written = classes()
    patterns = [one for one in written if "*" in one]
    return [
        name
        for name in sorted(names)
        if name not in written
        and (suspicious(name) or not any(fnmatchcase(name, pattern) for pattern in patterns))
    ]


def complaints(header: Path) -> list[str]:
    """Return what is wrong, one line each."""
    names = set(driver_api.prototypes(header))
    missing = unclassified(names)
    return [
        *(f"{one}: looks as if it allocated or launched" for one in missing if suspicious(one)),
        *(f"{one}: new" for one in missing if not suspicious(one)),
        *(f"{one}: in {kinds}" for one, kinds in classes().items() if len(kinds) > 1),
    ]


def main(header: Path) -> int:
    """Print what is wrong and return the exit status."""
    found = complaints(header)
    for line in found:
        print(line, file=sys.stderr)
    if found:
        print(f"{len(found)} to classify in vgpu_native/tools/functions.toml", file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    os.environ.setdefault("CC", "cc")
    sys.exit(main(Path(sys.argv[1])))
