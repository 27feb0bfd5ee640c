"""CDI: one specification per allocation, written before its container starts.

The runtime reads these files when it creates a container, by the name that the answer has given it.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from vgpu_native.plugin.allocation.allocate_response import KIND, HostMount
from vgpu_native.shared.atomic_file import write_whole

VERSION: Final = "0.5.0"
"""Of the specification; containerd from 1.7 and CRI-O from 1.23 on know it."""


def path_of(directory: Path, token: str) -> Path:
    """Return the path of the file that describes an allocation."""
    return directory / f"{KIND.replace('/', '-')}-{token}.json"


def specification(
    token: str, variables: Mapping[str, str], mounted: Sequence[HostMount]
) -> dict[str, Any]:
    """Return what the file says."""
    edits = {
        "env": [f"{name}={value}" for name, value in sorted(variables.items())],
        "mounts": [
            {
                "hostPath": one.host,
                "containerPath": one.container,
                "options": ["ro" if one.read_only else "rw", "nosuid", "nodev", "bind"],
            }
            for one in mounted
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
    """Describe an allocation. Raises OSError."""
    directory.mkdir(parents=True, exist_ok=True)
    content = msgspec.json.format(msgspec.json.encode(specification(token, variables, mounted)))
    write_whole(path_of(directory, token), content, 0o644)


def remove(directory: Path, token: str) -> None:
    """Describe an allocation no more. Raises OSError."""
    path_of(directory, token).unlink(missing_ok=True)
