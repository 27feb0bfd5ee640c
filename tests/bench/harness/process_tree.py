"""Process tree: all living processes below this one, and their processor time."""

import os
from collections import Counter
from pathlib import Path
from typing import Final

_PROC: Final = Path("/proc")
_PARENT, _USER, _SYSTEM = 1, 11, 12
"""Fields of /proc/PID/stat after the name, see proc(5)."""


def computed() -> float:
    """Return the processor seconds that the living descendants of this process have taken."""
    return sum(computed_by_program().values())


def computed_by_program() -> Counter[str]:
    """Return these processor seconds by the first 15 characters of the program's name."""
    processes = _living()
    family, tree = {os.getpid()}, set[int]()
    while family:
        tree |= family
        family = {
            pid for pid, (_, values) in processes.items() if int(values[_PARENT]) in family
        } - tree
    ticks = Counter[str]()
    for pid in (tree - {os.getpid()}) & processes.keys():
        program, values = processes[pid]
        ticks[program] += int(values[_USER]) + int(values[_SYSTEM])
    per_second = os.sysconf("SC_CLK_TCK")
    return Counter({program: count / per_second for program, count in ticks.items()})


def _living() -> dict[int, tuple[str, list[str]]]:
    """Return every process's name and the fields after it, by id."""
    processes = {}
    for folder in _PROC.iterdir():
        if folder.name.isdigit():
            try:
                name, _, fields = (folder / "stat").read_text().rpartition(")")
            except OSError:  # it has ended meanwhile
                continue
            processes[int(folder.name)] = (name.partition("(")[2], fields.split())
    return processes
