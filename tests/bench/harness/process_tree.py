"""Process tree: all living processes below this one, and their processor time together."""

import os
from pathlib import Path
from typing import Final

_PROC: Final = Path("/proc")
_PARENT, _USER, _SYSTEM = 1, 11, 12
"""Fields of /proc/PID/stat after the name, see proc(5)."""


def computed() -> float:
    """Return the processor seconds that the living descendants of this process have taken."""
    fields = _living()
    family, tree = {os.getpid()}, set[int]()
    while family:
        tree |= family
        family = {pid for pid, values in fields.items() if int(values[_PARENT]) in family} - tree
    ticks = sum(
        int(fields[pid][_USER]) + int(fields[pid][_SYSTEM])
        for pid in tree - {os.getpid()}
        if pid in fields
    )
    return ticks / os.sysconf("SC_CLK_TCK")


def _living() -> dict[int, list[str]]:
    """Return the fields of every process after its name, by id."""
    fields = {}
    for folder in _PROC.iterdir():
        if folder.name.isdigit():
            try:
                fields[int(folder.name)] = (folder / "stat").read_text().rpartition(")")[2].split()
            except OSError:  # it has ended meanwhile
                continue
    return fields
