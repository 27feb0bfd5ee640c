"""Run the native Makefile, and the folders that it reads and writes."""

import fcntl
import os
import subprocess
import sys
from pathlib import Path

NATIVE = Path(__file__).parents[3] / "vgpu_native"
BUILD = Path(os.environ.get("VGPU_BUILD", NATIVE / "build")).absolute()
"""Where make writes; another folder keeps several people from building in one."""

_BUILDING_S = 300.0


def build(*targets: str, **variables: str) -> None:
    """Run make, one at a time. Raises AssertionError with its output."""
    BUILD.mkdir(parents=True, exist_ok=True)
    given = [f"{name}={value}" for name, value in variables.items()]
    command = [
        "make",
        "-C",
        str(NATIVE),
        f"PYTHON={sys.executable}",
        f"BUILD={BUILD}",
        *given,
        *targets,
    ]
    with (BUILD / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=_BUILDING_S, check=False
        )
    assert done.returncode == 0, f"{' '.join(command)}\n{done.stdout[-2000:]}{done.stderr[-6000:]}"
