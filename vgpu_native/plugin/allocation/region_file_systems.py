"""Region file systems: slots, which are small file systems, one for each container's region.

A container may write any files into the directory of its region and so could fill the node's disk.
A slot is a tmpfs of a fixed size. The agent has no right to mount. An init container of
deploy/agent mounts slots once per boot, and the agent gives each allocation a free slot. The token
of an allocation names its slot, so that the response in the kubelet's checkpoint identifies it.
"""

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from vgpu_native.plugin.allocation.directory_removal import empty_tree

BYTES_MAX: Final = 8 * 1024**2
"""Maximum size of a slot; a larger file system is another mount."""

NAME_DIGITS_MAX: Final = 4
"""Maximum length of a slot's name, which is a number."""

_ALL_USERS: Final = 0o1777


def slot_in(token: str) -> str:
    """Return the slot that a token names; empty if its region is on the disk."""
    return token.partition("-")[2]


class RegionSlots:
    """The slots below a directory. Where none is mounted, regions are on the disk."""

    def __init__(self, directory: Path) -> None:
        """Keep the directory without reading it."""
        self.directory = directory

    @property
    def warning(self) -> str:
        """The warning that no slots are mounted; empty if slots are mounted."""
        if self.mounted():
            return ""
        return (
            f"no slots are mounted below {self.directory}: regions are on the node's disk, which a"
            " container can fill; the init container `slots` of deploy/agent/daemonset.yaml mounts"
            " them"
        )

    def mounted(self) -> list[str]:
        """Return the names of all slots, in order."""
        try:
            names = [path.name for path in self.directory.iterdir() if _is_name(path.name)]
        except OSError:
            return []
        return sorted((name for name in names if self.is_mounted(name)), key=int)

    def is_mounted(self, name: str) -> bool:
        """Return whether a slot is its own file system of at most BYTES_MAX."""
        path = self.path(name)
        try:
            if not os.path.ismount(path):
                return False
            size = os.statvfs(path)
        except OSError:
            return False
        return 0 < size.f_blocks * size.f_frsize <= BYTES_MAX

    def path(self, name: str) -> Path:
        """Return the directory of a slot."""
        return self.directory / name

    def free(self, tokens: Iterable[str]) -> str | None:
        """Return a slot that no token names; None if all are taken, empty without slots."""
        mounted = self.mounted()
        taken = {slot_in(token) for token in tokens}
        return next((slot for slot in mounted if slot not in taken), None) if mounted else ""

    def clear(self, name: str) -> None:
        """Remove all files of a container from a slot. Raises OSError."""
        if self.is_mounted(name):
            empty_tree(self.path(name))
            # The next container may run as any user, and the last one may have changed the mode.
            self.path(name).chmod(_ALL_USERS)


def _is_name(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= NAME_DIGITS_MAX
