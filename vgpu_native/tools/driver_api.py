"""The driver's functions, read from its headers `cuda.h` and `cudaTypedefs.h`.

A function has a full name, such as `cuMemcpyHtoD_v2_ptds`. Programs look it up by its base name
`cuMemcpyHtoD`, a version of CUDA, and whether a null stream means the thread's.
"""

import os
import re
import subprocess
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

PER_THREAD = 2
"""`CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM`."""

_PROTOTYPE = re.compile(r"\bCUresult\s+(cu[A-Z]\w*)\s*\(([^;{]*)\)\s*;")
_TYPEDEF = re.compile(r"\*PFN_(cu[A-Z]\w*?)_v(\d+)(_pt[ds][sz])?\)")
_NAME = re.compile(r"(cu\w+?)(?:_v(\d+))?(_pt[ds][sz])?")


class DriverFunction(NamedTuple):
    """One function: its parameters and its lookup key; version 0 if unknown."""

    name: str
    parameters: tuple[str, ...]
    base: str
    version: int
    flag: int

    @property
    def arguments(self) -> tuple[str, ...]:
        """Return the names of the parameters."""
        return tuple(_argument(parameter) for parameter in self.parameters)

    @property
    def typedef(self) -> str:
        """Return the name of its type in cudaTypedefs.h."""
        form = next((f for f in ("_ptds", "_ptsz") if self.name.endswith(f)), "")
        return f"PFN_{self.base}_v{self.version}{form}"


def functions(headers: Path) -> list[DriverFunction]:
    """Return all functions, sorted by name. Raises SystemExit if the two headers disagree."""
    declared = prototypes(headers / "cuda.h")
    keys = _lookup_keys(declared, (headers / "cudaTypedefs.h").read_text())
    return [DriverFunction(name, declared[name], *keys[name]) for name in sorted(declared)]


def prototypes(header: Path) -> dict[str, tuple[str, ...]]:
    """Return the parameters of each function of a header, after preprocessing."""
    command = [*os.environ.get("CC", "cc").split(), "-E", "-P", "-x", "c"]
    command += ["-D__CUDA_API_VERSION_INTERNAL=1", f"-I{header.parent}", str(header)]
    text = subprocess.run(command, check=True, capture_output=True, text=True, timeout=60).stdout
    return {name: _parameters(inside) for name, inside in _PROTOTYPE.findall(text)}


def parts(name: str) -> tuple[str, int, str]:
    """Return the base name, the number after `_v` (1 without), and `_ptds`, `_ptsz` or nothing."""
    match = _NAME.fullmatch(name)
    if match is None:
        raise SystemExit(f"{name}: not the name of a function of the driver")
    return match[1], int(match[2] or 1), match[3] or ""


def _lookup_keys(names: Iterable[str], typedefs: str) -> dict[str, tuple[str, int, int]]:
    # The n-th newest symbol of a base name is the one of the n-th newest type of that name.
    symbols: dict[tuple[str, str], list[str]] = defaultdict(list)
    for name in sorted(names, key=lambda function: parts(function)[1]):
        base, _, form = parts(name)
        symbols[base, form].append(name)
    versions: dict[tuple[str, str], list[int]] = defaultdict(list)
    for base, version, form in sorted(
        _TYPEDEF.findall(typedefs), key=lambda typedef: int(typedef[1])
    ):
        versions[base, form].append(int(version))
    odd = [key for key in symbols if len(symbols[key]) != len(versions[key])]
    if odd:
        raise SystemExit(f"cuda.h and cudaTypedefs.h disagree about {odd}")
    return {
        symbol: (base, version, PER_THREAD if form else 0)
        for (base, form), namesakes in symbols.items()
        for symbol, version in zip(namesakes, versions[base, form], strict=True)
    }


def _parameters(inside: str) -> tuple[str, ...]:
    text = " ".join(inside.split())
    return () if text in ("", "void") else tuple(parameter.strip() for parameter in text.split(","))


def _argument(parameter: str) -> str:
    return re.findall(r"\w+", re.sub(r"\[\w*\]", "", parameter))[-1]
