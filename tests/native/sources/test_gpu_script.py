"""The script that measures on a GPU runs on the stub, and reports that it did."""

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from native.harness.builds import BUILD

SECONDS = 150


@pytest.fixture(scope="module")
def bundle(make: Callable[..., None]) -> Path:
    make("gpu-bundle")
    return BUILD / "gpu-bundle"


def test_everything_is_measured_on_the_stub_and_limits_hold(bundle: Path) -> None:
    command: list[str | Path] = [bundle / "run", "--stub", "--seconds", "2"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False)
    assert "the STUB driver: no GPU was measured" in done.stdout, done.stdout + done.stderr
    for text in (
        "alloc+free, 10000 live",
        "graph launch",
        "cuMemGetInfo",
        "From SIGKILL",
        "PyTorch",
    ):
        assert text in done.stdout, done.stdout + done.stderr
    rows = [line.split("  ") for line in done.stdout.splitlines() if line.startswith("cuM")]
    assert {row[0] for row in rows} >= {"cuMemAlloc", "cuMemCreate, mapped and released"}
    # A busy machine may have disturbed the time of the device, which has tests of its own.
    assert done.stdout.splitlines()[-1] in ("All limits held", "NOT as promised: shares")


def test_a_missing_measurement_is_not_reported_as_held(bundle: Path, tmp_path: Path) -> None:
    broken = shutil.copytree(bundle, tmp_path / "bundle")
    for program in (broken / "bin").iterdir():
        program.write_text("#!/bin/sh\nexit 1\n")
    command: list[str | Path] = [broken / "run", "--stub", "--seconds", "1"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False)
    assert done.returncode == 2
    assert done.stdout.splitlines()[-1] == "NOT measured: 4 programs failed"


LIAR = """
int cuMemGetInfo_v2(unsigned long *left, unsigned long *total) {
  return *left = *total = 256ul << 20, 0;
}
"""


def test_a_library_that_does_not_limit_is_detected(bundle: Path, tmp_path: Path) -> None:
    honest = _verdicts(bundle, bundle / "libvgpu.so", tmp_path)
    assert honest == {"ok"}
    assert _verdicts(bundle, _liar(tmp_path), tmp_path) == {"GIVEN ABOVE the limit"}


def test_no_process_keeps_memory_when_the_measurement_fails(bundle: Path, tmp_path: Path) -> None:
    """A process that is left would hold the output pipe open, so that its end never comes."""
    env = os.environ | {"LD_LIBRARY_PATH": str(bundle / "stub"), "LD_PRELOAD": str(_liar(tmp_path))}
    env["VGPU_STUB_STATE"] = str(tmp_path / "machine")
    command: list[str | Path] = [bundle / "bin" / "recovery", "3"]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (1, "")
    assert "is there a limit?" in done.stderr


def _liar(folder: Path) -> Path:
    """Build a library that reports a limit and has none."""
    (folder / "liar.c").write_text(LIAR)
    command: list[str | Path] = [
        "gcc",
        "-shared",
        "-fPIC",
        folder / "liar.c",
        "-o",
        folder / "liar.so",
    ]
    subprocess.run(command, check=True, timeout=60)
    return folder / "liar.so"


def _verdicts(bundle: Path, library: Path, folder: Path) -> set[str]:
    """Return the verdicts of `limits` on all allocators with a library preloaded."""
    env = os.environ | {
        "LD_LIBRARY_PATH": str(bundle / "stub"),
        "LD_PRELOAD": str(library),
        "CUDA_DEVICE_MEMORY_LIMIT": "256m",
        "CUDA_DEVICE_MEMORY_SHARED_CACHE": str(folder / "region"),
    }
    command = [bundle / "bin" / "limits", bundle / "bin" / "view"]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return {line.split("\t")[3] for line in done.stdout.splitlines()}
