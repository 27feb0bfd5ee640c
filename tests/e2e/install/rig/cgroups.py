"""Cgroups of a rig, in every hierarchy of cgroup v1, or in that of version 2."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

ROOT: Final = Path("/sys/fs/cgroup")
_COPIED: Final = ("cpuset.cpus", "cpuset.mems")
"""Files that are empty in a new cpuset, which then takes no process."""


def make(path: str) -> None:
    """Make a cgroup in every hierarchy, its parents included."""
    for hierarchy in _hierarchies():
        folder = hierarchy
        for part in Path(path).parts:
            above, folder = folder, folder / part
            folder.mkdir(exist_ok=True)
            for name in _COPIED:
                if (above / name).is_file():
                    (folder / name).write_text((above / name).read_text())


def remove(path: str) -> list[Path]:
    """Remove a cgroup and those below it; return those that still have processes."""
    left = []
    for hierarchy in _hierarchies():
        for folder, _, _ in os.walk(hierarchy / path, topdown=False):
            try:
                Path(folder).rmdir()
            except FileNotFoundError:
                continue
            except OSError:
                left.append(Path(folder))
    return left


def _hierarchies() -> Iterator[Path]:
    if (ROOT / "cgroup.controllers").is_file():
        yield ROOT
        return
    yield from (folder for folder in ROOT.iterdir() if folder.is_dir() and not folder.is_symlink())
