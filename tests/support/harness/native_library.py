"""libvgpu.so and the stub driver, built once and kept for all tests."""

import fcntl
import functools
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

NATIVE = Path(__file__).parents[3] / "vgpu_native"
BUILD = Path(os.environ.get("VGPU_BUILD", NATIVE / "build")).absolute()
SECONDS = 300.0


@functools.cache
def built() -> Path:
    """Return the directory with libvgpu.so and stub/; skips where there is no C compiler.

    `VGPU_BUILT` names one that is there already.
    """
    if given := os.environ.get("VGPU_BUILT"):
        return Path(given)
    if shutil.which("gcc") is None and shutil.which("cc") is None:
        pytest.skip("there is no C compiler: install gcc to test with the stub driver")
    BUILD.mkdir(parents=True, exist_ok=True)
    command = ["make", "-C", str(NATIVE), f"PYTHON={sys.executable}", f"BUILD={BUILD}", "all"]
    with (BUILD / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False)
    assert done.returncode == 0, f"{done.stdout[-1000:]}{done.stderr[-4000:]}"
    return BUILD


def machine(state: Path, devices: int = 1, memory: str = "80g") -> dict[str, str]:
    """Return the environment in which processes see one machine with so many stub cards."""
    return {
        "LD_LIBRARY_PATH": str(built() / "stub"),
        "VGPU_STUB_STATE": str(state),
        "VGPU_STUB_DEVICES": str(devices),
        "VGPU_STUB_MEMORY": memory,
    }
