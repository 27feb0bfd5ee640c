"""All living processes below this one, and what they have computed together."""

import os
from pathlib import Path
from typing import Final

_PROC: Final = Path("/proc")
_PARENT, _USER, _SYSTEM = 1, 11, 12
"""Fields of /proc/PID/stat after the name, see proc(5)."""


def computed() -> float:
    """Return the processor seconds that the living descendants of this process have taken."""
    fields = _living()
    family, found = {os.getpid()}, set[int]()
    while family:
        found |= family
        family = {pid for pid, one in fields.items() if int(one[_PARENT]) in family} - found
    ticks = sum(
        int(fields[pid][_USER]) + int(fields[pid][_SYSTEM])
        for pid in found - {os.getpid()}
        if pid in fields
    )
    return ticks / os.sysconf("SC_CLK_TCK")


def _living() -> dict[int, list[str]]:
    """Return the fields of every process after its name, by id."""
    found = {}
    for one in _PROC.iterdir():
        if one.name.isdigit():
            try:
                found[int(one.name)] = (one / "stat").read_text().rpartition(")")[2].split()
            except OSError:  # it has ended meanwhile
                continue
    return found
