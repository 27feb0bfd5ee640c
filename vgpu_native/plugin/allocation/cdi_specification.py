"""CDI specification: one file per allocation, written before its container starts.

The runtime reads the file when it creates the container, by the device name in the response.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from vgpu_native.plugin.allocation.container_environment import KIND, HostMount
from vgpu_native.shared.atomic_file import write_whole

VERSION: Final = "0.5.0"
"""The specification's version; containerd 1.7, CRI-O 1.23 and later read it."""


def path_of(directory: Path, token: str) -> Path:
    """Return the path of an allocation's specification."""
    return directory / f"{KIND.replace('/', '-')}-{token}.json"


def specification(
    token: str, variables: Mapping[str, str], mounted: Sequence[HostMount]
) -> dict[str, Any]:
    """Return the content of the file."""
    edits = {
        "env": [f"{name}={value}" for name, value in sorted(variables.items())],
        "mounts": [
            {
                "hostPath": mount.host,
                "containerPath": mount.container,
                "options": ["ro" if mount.read_only else "rw", "nosuid", "nodev", "bind"],
            }
            for mount in mounted
        ],
    }
    return {
        "cdiVersion": VERSION,
        "kind": KIND,
        "devices": [{"name": token, "containerEdits": edits}],
    }


def write(
    directory: Path, token: str, variables: Mapping[str, str], mounted: Sequence[HostMount]
) -> None:
    """Write an allocation's specification. Raises OSError."""
    directory.mkdir(parents=True, exist_ok=True)
    content = msgspec.json.format(msgspec.json.encode(specification(token, variables, mounted)))
    write_whole(path_of(directory, token), content, 0o644)


def remove(directory: Path, token: str) -> None:
    """Remove an allocation's specification. Raises OSError."""
    path_of(directory, token).unlink(missing_ok=True)
