"""libvgpu.so and the stub driver, built."""

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

NATIVE: Final = Path(__file__).parents[3] / "vgpu_native"
BUILD_SECONDS: Final = 300


def built() -> Path:
    """Return where they are; skips the test where there is no C compiler."""
    if shutil.which("gcc") is None:
        pytest.skip("there is no gcc: libvgpu.so cannot be built")
    folder = Path(os.environ.get("VGPU_BUILD", NATIVE / "build")).absolute()
    told = [f"PYTHON={sys.executable}", f"BUILD={folder}"]
    command = ["make", "-s", "-C", str(NATIVE), *told, "all"]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=BUILD_SECONDS, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return folder
