"""Unmodified users of CUDA find their slice of the card: Python packages from their own wheels.

Below them is the stub driver, so that what they compute does not count, only what they ask for.
Packages on CUDA's runtime get as far as loading: the runtime examines the driver by questions that
only a real one can answer. PyTorch is one of them, and too large to be fetched for that.
"""

import subprocess
import venv
from collections.abc import Callable
from pathlib import Path

import pytest

pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]

_PACKAGES = (
    "cuda-bindings==13.5.0",
    "cupy-cuda13x==14.2.0",
    "numba==0.61.2",
    "numba-cuda==0.30.4",
    "nvidia-cuda-runtime==13.5.37",
    "nvidia-ml-py==13.615.71",
)
_INSTALL_S = 400.0
_RUN_S = 120.0
Script = Callable[[str], str]


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a Python of its own that has the packages; without a package index, skip."""
    home = tmp_path_factory.mktemp("users")
    venv.create(home, with_pip=True)
    command: list[str | Path] = [
        home / "bin/pip",
        "install",
        "-q",
        "--disable-pip-version-check",
        *_PACKAGES,
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=_INSTALL_S, check=False)
    if done.returncode:
        pytest.skip(f"CUDA's users cannot be installed: {done.stderr[-500:]}")
    return home / "bin/python"


@pytest.fixture
def bare(python: Path, native: Path, tmp_path: Path) -> Script:
    """Return a function that runs a script on the stub driver alone, with a card of 1 GiB."""
    return _runs(python, native, tmp_path / "bare", {})


@pytest.fixture
def limited(python: Path, native: Path, tmp_path: Path) -> Script:
    """Return a function that runs a script with the library and a limit of 100 MiB."""
    limits = {
        "LD_PRELOAD": str(native / "libvgpu.so"),
        "CUDA_DEVICE_MEMORY_LIMIT_0": "100m",
        "CUDA_DEVICE_MEMORY_SHARED_CACHE": str(tmp_path / "region"),
    }
    return _runs(python, native, tmp_path / "limited", limits)


def _runs(python: Path, native: Path, home: Path, limits: dict[str, str]) -> Script:
    home.mkdir()
    environment = {
        "PATH": "/usr/bin:/bin",
        "HOME": str(home),
        "LD_LIBRARY_PATH": str(native / "stub"),
        "VGPU_STUB_STATE": str(home / "machine"),
        "VGPU_STUB_MEMORY": "1g",
        **limits,
    }

    def run(script: str) -> str:
        command: list[str | Path] = [python, "-c", script]
        done = subprocess.run(
            command, env=environment, capture_output=True, text=True, timeout=_RUN_S, check=False
        )
        assert done.returncode == 0, done.stderr[-3000:]
        return done.stdout

    return run


BINDINGS = """
from cuda.bindings import driver as d
def ok(result):
    assert result[0] == d.CUresult.CUDA_SUCCESS, result
    return result[1] if len(result) == 2 else result[1:]
ok(d.cuInit(0))
card = ok(d.cuDeviceGet(0))
ok(d.cuCtxSetCurrent(ok(d.cuDevicePrimaryCtxRetain(card))))
held = []
while (result := d.cuMemAlloc(16 << 20))[0] == d.CUresult.CUDA_SUCCESS:
    held.append(result[1])
print(ok(d.cuDeviceTotalMem(card)) >> 20, len(held), result[0].name, ok(d.cuMemGetInfo())[0] >> 20)
for each in held:
    ok(d.cuMemFree(each))
print(ok(d.cuMemGetInfo())[0] >> 20)
"""


def test_cuda_bindings_gets_its_share_and_then_the_usual_error(
    bare: Script, limited: Script
) -> None:
    assert bare(BINDINGS) == "1024 64 CUDA_ERROR_OUT_OF_MEMORY 0\n1024\n"
    assert limited(BINDINGS) == "100 6 CUDA_ERROR_OUT_OF_MEMORY 4\n100\n"


NUMBA = """
import numpy
from numba import cuda
card = cuda.current_context()
held = []
try:
    while True:
        held.append(cuda.device_array(16 << 20, dtype=numpy.uint8))
except Exception as error:
    print(card.get_memory_info().total >> 20, len(held), "CUDA_ERROR_OUT_OF_MEMORY" in str(error))
held.clear()
numbers = cuda.to_device(numpy.arange(100))
begin, end = cuda.event(), cuda.event()
begin.record()
end.record()
end.synchronize()
print(numbers.copy_to_host().sum(), cuda.event_elapsed_time(begin, end) >= 0)
"""


def test_numba_gets_its_share_and_continues_after_the_error(bare: Script, limited: Script) -> None:
    assert bare(NUMBA) == "1024 64 True\n4950 True\n"
    assert limited(NUMBA) == "100 6 True\n4950 True\n"


CUPY = """
import cupy
try:
    print(cupy.cuda.runtime.memGetInfo())
except cupy.cuda.runtime.CUDARuntimeError as error:
    print(cupy.__version__, error)
"""


def test_cupy_loads_and_reports_the_same_with_and_without_the_library(
    bare: Script, limited: Script
) -> None:
    said = bare(CUPY)
    assert said.startswith("14.2.0 cudaError")
    assert limited(CUPY) == said


NVML = """
import pynvml as n
from cuda.bindings import driver as d
d.cuInit(0)
d.cuCtxSetCurrent(d.cuDevicePrimaryCtxRetain(0)[1])
d.cuMemAlloc(16 << 20)
n.nvmlInit()
memory = n.nvmlDeviceGetMemoryInfo(n.nvmlDeviceGetHandleByIndex(0))
print(memory.total >> 20, memory.used >> 20, memory.free >> 20)
"""


def test_nvml_shows_what_the_driver_shows(bare: Script, limited: Script) -> None:
    assert bare(NVML) == "1024 16 1008\n"
    assert limited(NVML) == "100 16 84\n"
