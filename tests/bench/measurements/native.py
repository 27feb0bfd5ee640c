"""Costs of libvgpu.so on the stub driver, compared call by call with the stub alone.

A value is what the library adds to the stub's own time, which is the baseline: the driver of a GPU
takes another time, but what is added stays the same instructions. Nothing here is a figure of a
GPU. The programs are those of `vgpu_native/tests/gpu`, which also run on a GPU.
"""

import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from tests.bench.harness.results import Goal, Result, Skipped, result
from vgpu_native.shared import usage_region

NATIVE: Final = Path(__file__).parents[3] / "vgpu_native"
BUILD: Final = Path(os.environ.get("VGPU_BUILD", NATIVE / "build")).absolute()
BUNDLE: Final = BUILD / "gpu-bundle"
BUILD_SECONDS: Final = 300
SECONDS_MAX: Final = 120
PAGE: Final = 4096
CONTAINERS: Final = 100
PROCESSES: Final = (1, 8, 64)
SHARES: Final = (10, 30, 50, 70, 90)
KERNEL_NS: Final = 1_000_000

_PAIR: Final = "alloc+free, "
_FIRST: Final = ("init", "first alloc+free")
"""Measured once in a process: they have a measurement of their own."""

_GOALS: Final = {"launch": 5.0, "cuMemGetInfo": 60.0}

Calls = dict[str, float]
"""Nanoseconds by what was called."""


def run(quick: bool) -> list[Result]:
    """Measure everything that is built here, with the library and without."""
    _build()
    rounds = 3 if quick else 9
    with tempfile.TemporaryDirectory() as folder:
        bed = _NativeBench(Path(folder))
        return [
            *_calls(bed, rounds),
            *_beginning(bed, 5 if quick else 40),
            *_shares(bed, 3 if quick else 10),
            _recovery(bed, 5 if quick else 50),
            _reading(bed, 2 if quick else 20),
        ]


def _build() -> None:
    if shutil.which("gcc") is None:
        raise Skipped("there is no gcc to build libvgpu.so with")
    told = [f"PYTHON={sys.executable}", f"BUILD={BUILD}"]
    command = ["make", "-s", "-C", str(NATIVE), *told, "gpu-bundle"]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=BUILD_SECONDS, check=False
    )
    if done.returncode:
        raise RuntimeError(f"libvgpu.so could not be built: {done.stderr[-500:]}")


class _NativeBench:
    """The stub, and containers of one after the other, each with a region of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._containers = 0
        kept = {name: text for name, text in os.environ.items() if "CUDA_" not in name}
        self.native = kept | {"LD_LIBRARY_PATH": str(BUNDLE / "stub")}

    def container(self, memory: str = "64g", cores: int = 100, **also: str) -> dict[str, str]:
        """Return the environment of the processes of a new container."""
        self._containers += 1
        return self.native | {
            "LD_PRELOAD": str(BUNDLE / "libvgpu.so"),
            "CUDA_DEVICE_MEMORY_LIMIT_0": memory,
            "CUDA_DEVICE_SM_LIMIT": str(cores),
            "GPU_CORE_UTILIZATION_POLICY": "force",
            "CUDA_DEVICE_MEMORY_SHARED_CACHE": str(self.folder / f"region-{self._containers}"),
            **also,
        }


def _calls(bed: _NativeBench, rounds: int) -> list[Result]:
    """Measure calls with so many processes attached, all but one of which are idle."""
    results = list[Result]()
    for processes in PROCESSES:
        with ExitStack() as stack:
            env = bed.container()
            for _ in range(processes - 1):
                stack.enter_context(_Idle(env))
            native, limited = _compared(bed, env, rounds)
        names = list(native) if processes == 1 else [call for call in native if _PAIR in call]
        results += [
            _added(name, processes, native, limited) for name in names if name not in _FIRST
        ]
    timed = bed.container(cores=99)
    native, limited = _compared(bed, timed, rounds)
    for name in ("launch", "graph launch"):
        title, goal = f"{name} with a limit of time, added", Goal(15.0, "most")
        results.append(_difference(title, native[name], limited[name], "ns", goal))
    return results


def _added(name: str, processes: int, native: Calls, limited: Calls) -> Result:
    bound = _GOALS.get(name)
    title = f"{name}, added"
    if name.startswith(_PAIR):
        bound = 150.0 if processes == max(PROCESSES) else 100.0
        title = f"{name}, {processes} {'process' if processes == 1 else 'processes'}, added"
    goal = None if bound is None else Goal(bound, "most")
    return _difference(title, native[name], limited[name], "ns", goal)


def _difference(title: str, native: float, limited: float, unit: str, goal: Goal | None) -> Result:
    return result(title, limited - native, unit, baseline=native, goal=goal)


def _compared(bed: _NativeBench, env: Mapping[str, str], rounds: int) -> tuple[Calls, Calls]:
    return _in_turn(rounds, lambda: _called(bed.native), lambda: _called(env))


def _in_turn(
    rounds: int, native: Callable[[], Calls], limited: Callable[[], Calls]
) -> tuple[Calls, Calls]:
    """Return the least of both; they take turns, so that a busy machine slows both.

    Each sample is a median of many batches already. Other work on the machine only adds to it,
    by half of it where another thread has the processor's other half.
    """
    both = [(native(), limited()) for _ in range(rounds)]
    return _least([plain for plain, _ in both]), _least([other for _, other in both])


def _least(samples: list[Calls]) -> Calls:
    return {name: min(sample[name] for sample in samples) for name in samples[0]}


def _called(env: Mapping[str, str], *arguments: str) -> Calls:
    lines = _printed("calls", *arguments, env=env)
    return {name: float(number) for name, number in (line.split("\t") for line in lines)}


def _beginning(bed: _NativeBench, rounds: int) -> list[Result]:
    """Measure what the first calls of a process cost, and what a program costs that makes none."""

    def begun(env: Mapping[str, str]) -> Calls:
        return {"us": sum(_called(env, "begin").values()) / 1_000}

    env = bed.container()
    native, limited = _in_turn(rounds, lambda: begun(bed.native), lambda: begun(env))
    attach = _difference(
        "attach: context and first alloc+free, added",
        native["us"],
        limited["us"],
        "µs",
        Goal(200.0, "most"),
    )
    preload = bed.native | {"LD_PRELOAD": env["LD_PRELOAD"]}
    native, limited = _in_turn(rounds * 5, lambda: _true(bed.native), lambda: _true(preload))
    return [attach, _difference("/bin/true, added", native["us"], limited["us"], "µs", None)]


def _true(env: Mapping[str, str]) -> Calls:
    begun = time.perf_counter()
    process = os.posix_spawn("/bin/true", ["true"], env)
    os.waitpid(process, 0)
    return {"us": 1e6 * (time.perf_counter() - begun)}


def _shares(bed: _NativeBench, seconds: int) -> list[Result]:
    """Measure how much time of a device a container has at most, in kernels that end."""
    whole = _kernels(bed.native, seconds)
    shares = {
        share: 100 * _kernels(bed.container(cores=share), seconds) / whole for share in SHARES
    }
    error = max(abs(shares[share] - share) for share in SHARES)
    loss = max(100 * (share - shares[share]) / share for share in SHARES)
    given = ", ".join(f"{share} % had {shares[share]:.1f} %" for share in SHARES)
    note = f"over {seconds} s, with kernels of {KERNEL_NS // 1000:,} µs: {given}"
    title = "error of a limit of time, worst of "
    limits = "/".join(str(share) for share in SHARES) + " %"
    return [
        result(title + limits, error, "points", goal=Goal(3.0, "most"), note=note),
        result("time promised and not given, worst", max(loss, 0.0), "%", goal=Goal(5.0, "most")),
    ]


def _kernels(env: Mapping[str, str], seconds: int) -> float:
    """Return kernels per second; the first second, in which a burst may be had, does not count."""
    lines = _printed("share", str(seconds), "1", "queue", str(KERNEL_NS), env=env)
    printed = dict(line.split("\t") for line in lines)
    return float(printed["rounds"]) * 1e9 / float(printed["elapsed_ns"])


def _recovery(bed: _NativeBench, rounds: int) -> Result:
    lines = _printed("recovery", str(rounds), env=bed.container("1g"))
    note = "from SIGKILL to the first allocation by another process that is granted"
    return result("recovery after SIGKILL", statistics.median(map(float, lines)), "µs", note=note)


def _reading(bed: _NativeBench, rounds: int) -> Result:
    """Measure the agent's reading of the regions of a node; eight processes were in each."""
    content = _region(bed)
    paths = [bed.folder / f"read-{number}" for number in range(CONTAINERS)]
    for path in paths:
        path.write_bytes(content)
    taken = []
    for _ in range(rounds):
        begun = time.perf_counter()
        for path in paths:
            assert len(usage_region.read(path).devices) == 1
        taken.append(1e3 * (time.perf_counter() - begun))
    title = f"regions of {CONTAINERS} containers read by the agent"
    return result(title, statistics.median(taken), "ms", note="8 processes in each")


def _region(bed: _NativeBench) -> bytes:
    env = bed.container()
    with ExitStack() as stack:
        for _ in range(8):
            stack.enter_context(_Idle(env))
        return Path(env["CUDA_DEVICE_MEMORY_SHARED_CACHE"]).read_bytes()


class _Idle:
    """A process that holds a page of memory and does nothing, for a block."""

    def __init__(self, env: Mapping[str, str]) -> None:
        self._env = env

    def __enter__(self) -> None:
        command: list[str | Path] = [BUNDLE / "bin" / "calls", "hold", str(PAGE)]
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(command, env=self._env, stdin=pipe, stdout=pipe)
        assert self._process.stdout is not None
        if self._process.stdout.readline() != b"ready\n":
            raise RuntimeError("an idle process could not allocate a page")

    def __exit__(self, *_: object) -> None:
        self._process.communicate(timeout=SECONDS_MAX)


def _printed(program: str, *arguments: str, env: Mapping[str, str]) -> list[str]:
    """Return the lines that a program prints. Raises RuntimeError when it fails."""
    command = [str(BUNDLE / "bin" / program), *arguments]
    done = subprocess.run(
        command, env=env, capture_output=True, text=True, timeout=SECONDS_MAX, check=False
    )
    if done.returncode:
        raise RuntimeError(f"{program} ended with {done.returncode}: {done.stderr.strip()}")
    return done.stdout.splitlines()
