"""The driver's functions by name: those that the library's table lacks, and those with hooks.

Run as `python3 -m gpu_check.driver_names FUNCTIONS.json`, it asks this process's driver for each
name in the driver's file, and prints JSON. With the library preloaded, it shows which functions the
program gets from the library.
"""

from __future__ import annotations

import ctypes
import json
import re
import sys
from pathlib import Path
from typing import Any

NAMES_MAX = 20_000
PER_THREAD = 2
_NAME = re.compile(rb"(?<![A-Za-z0-9_])cu[A-Z][A-Za-z0-9]{2,60}(?:_v[0-9])?(?:_pt[ds][sz])?(?=\0)")
_SUFFIX = re.compile(r"(?:_v\d+)?(?:_pt[ds][sz])?$")


class _Where(ctypes.Structure):
    _fields_ = [
        ("file", ctypes.c_char_p),
        ("base", ctypes.c_void_p),
        ("symbol", ctypes.c_char_p),
        ("address", ctypes.c_void_p),
    ]


class Driver:
    """The driver in this process."""

    def __init__(self) -> None:
        """Load it. Raises OSError."""
        self._loader = ctypes.CDLL(None)
        self._loader.dladdr.argtypes = [ctypes.c_void_p, ctypes.POINTER(_Where)]
        self.library = ctypes.CDLL("libcuda.so.1", mode=ctypes.RTLD_GLOBAL)
        version = ctypes.c_int()
        self.library.cuDriverGetVersion(ctypes.byref(version))
        self.version = version.value
        self._second = hasattr(self.library, "cuGetProcAddress_v2")

    def exported(self, name: str) -> int:
        """Return the address of a symbol, 0 if there is none."""
        try:
            return ctypes.cast(getattr(self.library, name), ctypes.c_void_p).value or 0
        except AttributeError:
            return 0

    def handed_out(self, base: str, flag: int, version: int) -> int:
        """Return the address that cuGetProcAddress returns, 0 if there is none."""
        address = ctypes.c_void_p()
        first = (
            base.encode(),
            ctypes.byref(address),
            ctypes.c_int(version),
            ctypes.c_ulonglong(flag),
        )
        if self._second:
            status = self.library.cuGetProcAddress_v2(*first, None)
        else:
            status = self.library.cuGetProcAddress(*first)
        return address.value or 0 if status == 0 else 0

    def file_of(self, address: int) -> str:
        """Return the base name of the file that holds an address."""
        where = _Where()
        if not self._loader.dladdr(address, ctypes.byref(where)) or not where.file:
            return ""
        return Path(where.file.decode()).name

    def path(self) -> Path:
        """Return the driver's file."""
        mapped = Path("/proc/self/maps").read_text().splitlines()
        return Path(next(line.split()[-1] for line in mapped if "libcuda.so" in line))


def names_in(content: bytes) -> list[str]:
    """Return the names in a driver's file that look like those of its functions."""
    return sorted({match.decode() for match in _NAME.findall(content)})[:NAMES_MAX]


def report(driver: Driver, table: dict[str, Any]) -> dict[str, Any]:
    """Return the functions that are missing in the table, and the hooks that are not handed out."""
    known = {row[0]: driver.exported(row[0]) for row in table["functions"]}
    addresses = set(known.values())
    for _, base, version, flag, _ in table["functions"]:
        if base and 0 < version <= driver.version:
            addresses.add(driver.handed_out(base, flag, version))
    names = names_in(driver.path().read_bytes())
    unknown: dict[str, str] = {}
    for name in names:
        if name not in known and driver.exported(name):
            unknown[name] = "exported"
    for base in sorted({_SUFFIX.sub("", name) for name in names}):
        for flag in (0, PER_THREAD):
            address = driver.handed_out(base, flag, driver.version)
            if address and address not in addresses:
                unknown.setdefault(base, f"handed out with flag {flag}")
    return {
        "version": driver.version,
        "names": len(names),
        "exported": sum(1 for name in names if driver.exported(name)),
        "unknown": unknown,
        "unhooked": unhooked(driver, table),
    }


def unhooked(driver: Driver, table: dict[str, Any]) -> list[str]:
    """Return the functions with hooks for which the program gets the driver's own."""
    without = []
    for name, base, version, flag, hooked in table["functions"]:
        if not hooked or not name.startswith("cu") or not version or version > driver.version:
            continue
        address = driver.handed_out(base, flag, version)
        if address and "libcuda" in driver.file_of(address):
            without.append(f"{name} (cuGetProcAddress)")
        exported = driver.exported(name)
        if exported and "libcuda" in driver.file_of(exported):
            without.append(f"{name} (dlsym)")
    return without


if __name__ == "__main__":
    print(json.dumps(report(Driver(), json.loads(Path(sys.argv[1]).read_text()))))
