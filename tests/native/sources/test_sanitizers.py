"""Sanitizers over the whole library report planted defects, and nothing in the library.

`make -C vgpu_native asan ubsan tsan` runs all programs; here each sanitizer runs a few.
"""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from native.harness.builds import BUILD, NATIVE

RUN = NATIVE / "tests/sanitizers/run.py"

DEFECTS = {
    "asan": ("read_past_end", "global-buffer-overflow"),
    "ubsan": ("shifted_too_far", "runtime error: left shift"),
    "tsan": ("plain_write", "data race"),
}
"""The planted defect of each sanitizer, and its report."""

FEW = ("memory_threads 1", "memory_rules pools", "time_load threads", "process/ends exit")

Make = Callable[..., None]


def checked(make: Make, kind: str, sources: str, *names: str, timeout_s: float) -> tuple[int, str]:
    """Return the exit status and the output of a run of programs with a sanitizer."""
    library = BUILD / "sanitizers" / kind / sources / "libvgpu.so"
    make("tests", str(library))
    done = subprocess.run(
        [sys.executable, RUN, kind, library, BUILD, *names],
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
    )
    return done.returncode, done.stdout + done.stderr


@pytest.fixture(params=["asan", pytest.param("ubsan", marks=pytest.mark.long), "tsan"])
def kind(request: pytest.FixtureRequest) -> str:
    """Return a sanitizer that the compiler has."""
    name = str(request.param)
    command = ["gcc", f"-print-file-name=lib{name}.so"]
    runtime = subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    if not Path(runtime).is_absolute():
        pytest.skip(f"the compiler has no {name}")
    return name


def test_a_planted_defect_is_reported(make: Make, kind: str) -> None:
    defect, report = DEFECTS[kind]
    status, said = checked(make, kind, defect, "memory_threads 1", timeout_s=120)
    assert status == 1
    assert report in said
    assert "device_lookup.c" in said


def test_a_few_programs_run_without_a_report(make: Make, kind: str) -> None:
    status, said = checked(make, kind, "plain", *FEW, timeout_s=120)
    assert status == 0, said
    assert f"{kind}: {len(FEW)} programs, 0 with reports" in said


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_all_programs_run_without_a_report(make: Make, kind: str) -> None:
    status, said = checked(make, kind, "plain", timeout_s=1700)
    assert status == 0, said
