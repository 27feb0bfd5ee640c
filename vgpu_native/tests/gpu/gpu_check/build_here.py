"""Build the programs and the library on this machine, where the bundle's own do not start.

That is so on another architecture or with an older C library. gcc is enough: the bundle has the
sources, the generated files and the headers.
"""

from __future__ import annotations

import platform
import shutil
import subprocess
from pathlib import Path

SECONDS = 120
_FLAGS = ["-O2", "-std=gnu11", "-fPIC", "-pthread", "-D_GNU_SOURCE", "-DVGPU_CHECKS=0", "-w"]
_ALLOCATORS = "limits"


class BuildFailed(Exception):
    """gcc is missing or fails; the message has its last lines."""


def starts(bundle: Path) -> bool:
    """Return whether a program of the bundle can be started here, up to its usage."""
    command = [str(bundle / "bin" / "view"), "--help"]
    try:
        done = subprocess.run(command, capture_output=True, timeout=20, check=False)
    except (OSError, subprocess.SubprocessError):
        return False
    return done.returncode == 0


def build(bundle: Path, target: Path, driver: Path | None = None) -> Path:
    """Build into `target`, which becomes a bundle of its own, and return it. Raises BuildFailed.

    Programs are linked against `driver`, by default this machine's own.
    """
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        raise BuildFailed(
            "the bundle's programs do not start here, and there is no gcc to build others"
        )
    source = bundle / "source"
    (target / "bin").mkdir(parents=True, exist_ok=True)
    include = [f"-I{source / 'include'}", f"-I{source / 'made'}", f"-isystem{source / 'cuda'}"]
    base = [compiler, *_FLAGS, "-iquote", str(source / "src"), *include]
    _build_library(base, source, target)
    link = [str(driver)] if driver else ["-l:libcuda.so.1"]
    for program in sorted((source / "programs").glob("*.c")):
        if program.stem == "allocators":
            continue
        more = [str(source / "programs" / "allocators.c")] if program.stem == _ALLOCATORS else []
        libraries = [] if program.stem == "view" else link
        _run(
            [
                *base,
                str(program),
                *more,
                "-o",
                str(target / "bin" / program.stem),
                *libraries,
                "-ldl",
                "-lrt",
            ]
        )
    for name in ("functions.json", "commit", "lib", "stub"):
        if (bundle / name).exists() and not (target / name).exists():
            (target / name).symlink_to(bundle / name)
    return target


def _build_library(base: list[str], source: Path, target: Path) -> None:
    machine = platform.machine()
    dlsym = source / "src" / "intercept" / "dlsym"
    files = [*sorted((source / "src").rglob("*.c")), dlsym / f"dlsym_{machine}.S"]
    versions = dlsym / f"dlsym_{machine}.map"
    linked = [
        "-Wl,-soname,libvgpu.so",
        "-Wl,-z,nodelete",
        "-Wl,-Bsymbolic-functions",
        f"-Wl,--version-script={versions}",
    ]
    hidden = ["-fvisibility=hidden", "-fno-semantic-interposition", "-shared"]
    _run(
        [
            *base,
            *hidden,
            *map(str, files),
            *linked,
            "-o",
            str(target / "libvgpu.so"),
            "-ldl",
            "-lpthread",
        ]
    )


def _run(command: list[str]) -> None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False)
    except subprocess.TimeoutExpired as error:
        raise BuildFailed(f"{command[-1]} was not built within {SECONDS} s") from error
    if done.returncode:
        raise BuildFailed(f"{' '.join(command[-8:])}: {done.stderr[-400:]}")
