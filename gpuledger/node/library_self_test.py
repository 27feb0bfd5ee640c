"""Library self-test: checks that libvgpu.so loads on this machine and limits allocations.

Each check runs in a separate process with a deadline, so a crash or hang of the library is a
result.
"""

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import Final

import msgspec
import typer

from gpuledger.cli.exit_codes import Exit
from gpuledger.cli.output import Format, show_rows
from gpuledger.cli.tables.table_columns import Listing

SECONDS: Final = 60.0
"""Deadline of one check; the first context on a large card takes some seconds."""

LIMIT_MIB: Final = 256
EXPORTS: Final = ("dlsym", "cuMemAlloc_v2", "cuGetProcAddress_v2", "nvmlDeviceGetMemoryInfo")

_UNCHECKED_STATUS: Final = 77
_FAILED_STATUS: Final = 78

_LOADING: Final = """
import ctypes, sys
library = ctypes.CDLL(sys.argv[1])
missing = [name for name in sys.argv[2:] if not hasattr(library, name)]
sys.exit("not exported: " + ", ".join(missing) if missing else 0)
"""

_LIMITING: Final = """
import ctypes, sys
MIB, OUT_OF_MEMORY = 1 << 20, 2
def unchecked(text):
    print(text); sys.exit(77)
def failed(text):
    print(text); sys.exit(78)
try:
    cuda = ctypes.CDLL(sys.argv[1])
except OSError as error:
    unchecked(str(error))
limit = int(sys.argv[2]) * MIB
status = cuda.cuInit(0)
if status:
    unchecked(f"cuInit answers {status}: the driver finds no card that it can use")
device, context, address = ctypes.c_int(), ctypes.c_void_p(), ctypes.c_uint64()
def must(name, *given):
    status = getattr(cuda, name)(*given)
    if status:
        failed(f"{name} answers {status}")
must("cuDeviceGet", ctypes.byref(device), 0)
must("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
must("cuCtxSetCurrent", context)
free, total = ctypes.c_size_t(), ctypes.c_size_t()
must("cuMemGetInfo_v2", ctypes.byref(free), ctypes.byref(total))
if total.value != limit:
    failed(f"cuMemGetInfo shows {total.value} bytes, the limit is {limit}")
def allocate(size):
    return cuda.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(size))
if allocate(limit + MIB) != OUT_OF_MEMORY:
    failed("more than the limit was allocated")
room = free.value // 2
if allocate(room):
    failed(f"{room} bytes within the limit were refused")
if allocate(limit - room + MIB) != OUT_OF_MEMORY:
    failed("two allocations together went beyond the limit")
must("cuMemFree_v2", address)
if allocate(room):
    failed("what was freed was not given back")
print(f"{limit // MIB} MiB were shown and held, {free.value // MIB} of them were free")
"""


class Result(StrEnum):
    """The result of a check."""

    HOLDS = "holds"
    FAILS = "fails"
    UNCHECKED = "unchecked"


class Check(msgspec.Struct, frozen=True):
    """One check: its result, with an explanation in `detail`."""

    name: str
    result: Result
    detail: str = ""


def main(library: str, driver: str, output: Format, columns: Listing) -> None:
    """Print all checks. Raises typer.Exit with their exit code."""
    checked = list(checks(Path(library), driver))
    show_rows(checked, columns, output, "Nothing was checked.")
    raise typer.Exit(status_of(checked))


def status_of(checked: Sequence[Check]) -> Exit:
    """Return the exit code of checks."""
    results = {check.result for check in checked}
    if Result.FAILS in results:
        return Exit.FAILED
    return Exit.NOT_READY if Result.UNCHECKED in results else Exit.OK


def checks(library: Path, driver: str) -> Iterator[Check]:
    """Yield the results of the checks; a failed check omits those that depend on it."""
    library = library.absolute()
    if not library.is_file():
        yield Check(
            "library",
            Result.FAILS,
            f"{library} is not a file: build it with `make native`, or name it with --library",
        )
        return
    with _loadable(library) as path:
        loading = _loading(path)
        yield loading
        if loading.result is Result.HOLDS:
            yield _silent(path)
            yield _limiting(path, driver)


@contextmanager
def _loadable(library: Path) -> Iterator[Path]:
    """Yield a path of the library that LD_PRELOAD accepts, if necessary a link to it.

    In LD_PRELOAD a path ends at a space or a colon, and the text after a dollar may be replaced.
    """
    if not set(str(library)) & set(" :$"):
        yield library
        return
    with tempfile.TemporaryDirectory(dir="/tmp") as directory:
        link = Path(directory) / "libvgpu.so"
        link.symlink_to(library)
        yield link


def _loading(library: Path) -> Check:
    status, text = _run([sys.executable, "-c", _LOADING, str(library), *EXPORTS], {})
    return Check("loads", Result.FAILS if status else Result.HOLDS, text)


def _silent(library: Path) -> Check:
    """Check that the library has no effect on a process without CUDA."""
    status, text = _run(["/bin/true"], {"LD_PRELOAD": str(library)})
    if status or text:
        return Check("silent", Result.FAILS, f"/bin/true ends with {status} and prints {text!r}")
    return Check("silent", Result.HOLDS, "no effect on a process without CUDA")


def _limiting(library: Path, driver: str) -> Check:
    with tempfile.TemporaryDirectory() as directory:
        status, text = _run(
            [sys.executable, "-c", _LIMITING, driver, str(LIMIT_MIB)],
            {
                "LD_PRELOAD": str(library),
                "CUDA_DEVICE_MEMORY_LIMIT": f"{LIMIT_MIB}m",
                "CUDA_DEVICE_MEMORY_SHARED_CACHE": f"{directory}/region",
            },
        )
    if status == _UNCHECKED_STATUS:
        return Check("limits", Result.UNCHECKED, text)
    return Check("limits", Result.FAILS if status else Result.HOLDS, text)


def _run(command: list[str], environment: dict[str, str]) -> tuple[int, str]:
    """Run a process; return its status and the end of its output."""
    inherited = {
        key: value
        for key, value in os.environ.items()
        if not key.startswith(("CUDA_", "GPULEDGER_")) and key != "LD_PRELOAD"
    }
    try:
        done = subprocess.run(
            command,
            env=inherited | environment,
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return _FAILED_STATUS, f"it did not end in {SECONDS:g} s"
    printed = (done.stdout + done.stderr).strip().splitlines()
    text = printed[-1] if printed else ""
    if done.returncode < 0:
        return _FAILED_STATUS, f"it was ended by signal {-done.returncode}; {text}"
    return done.returncode, text
