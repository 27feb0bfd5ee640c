"""functions.toml classifies every function of the driver, and the library follows it."""

import re
import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest
from native.harness.builds import NATIVE

TOOLS = NATIVE / "tools"
HEADER = Path("headers/nvidia/cu13/include/cuda.h")


def check(header: Path) -> subprocess.CompletedProcess[str]:
    """Run the check on a header."""
    return subprocess.run(
        [sys.executable, TOOLS / "check_function_classes.py", header],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_every_function_of_the_header_is_classified(library: Path) -> None:
    done = check(library.parent / HEADER)
    assert done.returncode == 0, done.stderr


@pytest.mark.usefixtures("make")  # whose compiler reads the header
@pytest.mark.parametrize("name", ["cuMemAllocTurbo", "cuMemAlloc_v3", "cuLaunchKernelSoon_ptsz"])
def test_a_new_function_is_reported_when_it_allocates_or_launches(
    tmp_path: Path, name: str
) -> None:
    header = tmp_path / "cuda.h"
    header.write_text(f"CUresult cuInit(unsigned);\nCUresult {name}(size_t);\n")
    done = check(header)
    assert done.returncode == 1
    assert f"{name}: looks as if it allocated or launched" in done.stderr
    assert "cuInit" not in done.stderr


@pytest.mark.usefixtures("make")
def test_a_new_harmless_function_is_reported(tmp_path: Path) -> None:
    header = tmp_path / "cuda.h"
    header.write_text("CUresult cuWonder(int);\n")
    assert "cuWonder: new" in check(header).stderr


def test_the_library_has_a_hook_for_each_function_listed_as_hooked(library: Path) -> None:
    table = tomllib.loads((TOOLS / "functions.toml").read_text())["hooked"]
    wanted = {name for names in table.values() for name in names}
    made = (library.parent / "include" / "hooks.inc").read_text()
    hooks = set(re.findall(r"VGPU_HOOK\((\w+)\)", made))
    assert hooks - wanted == set(), "name these under [hooked] in functions.toml"
    assert wanted - hooks == set(), "write these in src/, or name them under [forwarded]"


WARNED = "is a function of a newer driver, which this library does not limit"


def warnings(library: Path, make: Callable[..., None], *steps: str, level: int = 1) -> list[str]:
    """Return the names and versions that a probe of a newer driver logs, in their order."""
    make("dlsym")
    probes = library.parent / "dlsym"
    settings = {
        "LD_LIBRARY_PATH": str(probes / "newer"),
        "LD_PRELOAD": str(library),
        "LIBCUDA_LOG_LEVEL": str(level),
    }
    done = subprocess.run(
        [probes / "probe", "open:libcuda.so.1", *steps],
        env=settings,
        capture_output=True,
        text=True,
        timeout=30,
        check=True,
    )
    lines = [
        line.partition("): ")[2].partition(f" {WARNED}")[0] for line in done.stderr.splitlines()
    ]
    assert done.stderr.count(WARNED) == len(lines)
    return lines


def test_a_function_of_a_newer_driver_is_logged_once(
    library: Path, make: Callable[..., None]
) -> None:
    known = ("has:cuMemAlloc_v2", "has:cuCtxGetId", "has:cuNothing", "default:cuNothing")
    steps = (*known, "has:cuMemAllocTurbo", "has:cuMemAlloc_v3", "has:cuWonder")
    twice = (*steps, "sleep:2", *steps)
    assert warnings(library, make, *twice) == ["cuMemAllocTurbo", "cuMemAlloc_v3"]
    notes = warnings(library, make, *steps, level=2)
    assert notes == ["cuMemAllocTurbo", "cuMemAlloc_v3", "cuWonder"]
    assert warnings(library, make, *steps, level=0) == []


def test_a_version_of_a_newer_driver_is_logged_once(
    library: Path, make: Callable[..., None]
) -> None:
    known = ("address:cuMemAlloc@3020", "address:cuMemAlloc@13000", "address:cuCtxGetId@99000")
    steps = (*known, "address:cuMemAlloc@14000", "address:cuMemAllocTurbo@14000") * 2
    expected = ["cuMemAlloc of version 14000", "cuMemAllocTurbo of version 14000"]
    assert warnings(library, make, *steps) == expected
