"""Run the native Makefile, and the folders that it reads and writes."""

import fcntl
import os
import subprocess
import sys
from pathlib import Path

NATIVE = Path(__file__).parents[3] / "vgpu_native"
BUILD = Path(os.environ.get("VGPU_BUILD", NATIVE / "build")).absolute()
"""Where make writes; another folder keeps several people from building in one."""

BUILDS = (BUILD, BUILD / "cheap", BUILD / "checked")
"""The builds, by the highest level of assertions that they check; the first is what ships."""

CHECKED = BUILDS[-1]

_BUILDING_S = 300.0


def build(*targets: str, checks: int = 0, **variables: str) -> None:
    """Run make for one of the builds, one run at a time.

    Raises AssertionError with the output of make if it fails.
    """
    BUILD.mkdir(parents=True, exist_ok=True)
    settings = {
        "PYTHON": sys.executable,
        "BUILD": str(BUILDS[checks]),
        "HEADERS": str(BUILD / "headers"),
        "CHECKS": str(checks),
        **variables,
    }
    given = [f"{name}={value}" for name, value in settings.items()]
    command = ["make", "-C", str(NATIVE), *given, *targets]
    with (BUILD / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=_BUILDING_S, check=False
        )
    assert done.returncode == 0, f"{' '.join(command)}\n{done.stdout[-2000:]}{done.stderr[-6000:]}"
