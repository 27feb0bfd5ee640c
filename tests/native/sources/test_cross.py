"""The library builds for aarch64, too."""

import importlib.util
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest


def compiler() -> dict[str, str]:
    """Return the variables of make for a compiler for aarch64, of those that are here."""
    if shutil.which("aarch64-linux-gnu-gcc"):
        return {"CROSS": "aarch64-linux-gnu-gcc"}
    if importlib.util.find_spec("ziglang"):
        # Its linker lacks the option and the files; this only checks that everything compiles.
        return {
            "CROSS": f"{sys.executable} -m ziglang cc -target aarch64-linux-gnu.2.17",
            "SYMBOLIC": "-Wl,-Bsymbolic",
            "OLD_GLIBC": "-ldl -lpthread",
        }
    pytest.skip(
        "no compiler for aarch64: apt install gcc-aarch64-linux-gnu, or pip install ziglang"
    )


@pytest.mark.long
def test_the_library_builds_for_aarch64_and_needs_glibc_2_17_only(
    library: Path, make: Callable[..., None]
) -> None:
    make("cross", **compiler())
    cross = library.parent / "aarch64" / "libvgpu.so"
    said = subprocess.run(
        ["readelf", "--file-header", "--dyn-syms", "--wide", cross],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    ).stdout
    assert "AArch64" in said
    needed = re.findall(r"UND \w+@(GLIBC_[\d.]+)", said)
    assert set(needed) == {"GLIBC_2.17"}
    exported = re.findall(r"FUNC +GLOBAL DEFAULT +\d+ (\w+)$", said, re.MULTILINE)
    made = (library.parent / "include" / "hooks.inc").read_text()
    for name in ("dlsym", "dlvsym"):
        assert f"{name}@GLIBC_2.17" in said
        assert f"{name}@GLIBC_2.34" in said
    assert set(exported) == {"dlsym", "dlvsym", *re.findall(r"VGPU_HOOK\((\w+)\)", made)}


@pytest.mark.long
@pytest.mark.parametrize("way", ["linked", "dlsym", "address"])
def test_calls_arrive_on_aarch64(abi: Path, make: Callable[..., None], way: str) -> None:
    """`VGPU_AARCH64` is a command that runs a program: `qemu-aarch64 -L /usr/aarch64-linux-gnu`."""
    if "VGPU_AARCH64" not in os.environ:
        pytest.skip("VGPU_AARCH64 does not say how to run programs of aarch64")
    make("cross", **compiler(), CROSS_TARGETS="abi")
    cross = abi.parent / "aarch64" / "abi"
    given = ["-E", f"LD_PRELOAD={cross}/libvgpu.so", "-E", f"LD_LIBRARY_PATH={cross}"]
    done = subprocess.run(
        [*os.environ["VGPU_AARCH64"].split(), *given, cross / "calls", way],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    calls, hooked = map(int, done.stdout.split())
    assert hooked == calls >= 683
