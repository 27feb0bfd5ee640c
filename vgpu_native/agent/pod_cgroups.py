"""Pod cgroups: the pod of a process of the host, by the cgroup names that the kubelet gives."""

import re
from pathlib import Path
from typing import Final, Protocol

CGROUP_BYTES_MAX: Final = 65_536
"""Maximum size of the file that is read of a process's cgroups."""

_POD: Final = re.compile(
    r"[/-]pod([0-9a-f]{8}[-_][0-9a-f]{4}[-_][0-9a-f]{4}[-_][0-9a-f]{4}[-_][0-9a-f]{12}|[0-9a-f]{32})"
    r"(?:\.slice)?(?:/|$)",
    re.MULTILINE,
)


class Cgroups(Protocol):
    """Maps processes, by their pids on the host, to pods."""

    def pod_of(self, pid: int) -> str:
        """Return the uid of the pod that a process is in, empty when it is in none or gone."""
        ...


class ProcCgroups:
    """`Cgroups` from `/proc`, which must be that of the host (`hostPID`)."""

    def __init__(self, proc: Path = Path("/proc")) -> None:
        """Read below this directory."""
        self._proc = proc

    def pod_of(self, pid: int) -> str:
        """Return the uid of the pod that a process is in, empty when it is in none or gone."""
        try:
            with (self._proc / str(pid) / "cgroup").open("rb") as file:
                return pod_in(file.read(CGROUP_BYTES_MAX).decode(errors="replace"))
        except OSError:
            return ""


def pod_in(text: str) -> str:
    """Return the uid of the pod in the content of a process's `cgroup` file, empty without one.

    With the systemd driver the dashes of the uid are underscores. A container may create
    cgroups in that of its pod. So the outermost counts, which is the kubelet's.
    """
    match = _POD.search(text)
    return match.group(1).replace("_", "-") if match is not None else ""
