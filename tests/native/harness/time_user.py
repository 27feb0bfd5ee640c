"""Run `time_load`, which keeps a device of the stub busy, under a limit of time."""

import os
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from vgpu_native.shared.layout import BUDGET, REGION

BURST_S = 0.1
"""The time of a share that may be saved up, in seconds."""

TIMEOUT_S = 90.0
MICROSECOND, MILLISECOND = 1_000, 1_000_000


@dataclass(frozen=True)
class Load:
    """One way of keeping a device busy with kernels of so many nanoseconds, for so long."""

    way: str
    kernel_ns: int
    seconds: float = 1.5
    warm: float = 0.5

    @property
    def arguments(self) -> tuple[str, ...]:
        """Return the arguments of `time_load`."""
        return (self.way, str(self.seconds), str(self.kernel_ns), str(self.warm))


@dataclass(frozen=True)
class Pattern:
    """Kernels of one kind: of `period` of them the last takes `long_ns`, the others `short_ns`."""

    way: str
    short_ns: int
    long_ns: int = 0
    period: int = 1
    seconds: float = 1.5
    warm: float = 0.5

    @property
    def arguments(self) -> tuple[str, ...]:
        """Return the arguments of `time/patterns`."""
        numbers = (self.seconds, self.warm, self.period, self.short_ns, self.long_ns)
        return (self.way, *map(str, numbers))


class Container:
    """Processes that share a region, on a stub machine that containers may share."""

    def __init__(self, build: Path, directory: Path, library: Path | None = None) -> None:
        """Use the library of a build, or another one."""
        self.build = build
        self.library = library or build / "libvgpu.so"
        self.region = directory / "region"
        self.environment: dict[str, str] = {}

    def start(self, program: Path, load: Load | Pattern, **settings: str) -> subprocess.Popen[str]:
        """Start a process; it prints the percent of the device's time that it used."""
        if isinstance(load, Load):
            settings = {"VGPU_STUB_GRID_NS": str(load.kernel_ns), **settings}
        return self.run(program, *load.arguments, **settings)

    def run(self, program: Path, *arguments: str, **settings: str) -> subprocess.Popen[str]:
        """Start a process with arguments."""
        environment = {
            **os.environ,
            "LD_PRELOAD": str(self.library),
            "CUDA_DEVICE_MEMORY_SHARED_CACHE": str(self.region),
            "VGPU_STUB_FORK": "1",
            **self.environment,
            **settings,
        }
        return subprocess.Popen(
            [str(program), *arguments],
            env=environment,
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )

    def budget(self, field: str, entry: int = 0) -> int:
        """Return a word of a device's budget, in nanoseconds."""
        place = REGION["budget"]
        offset = place.offset + entry * (place.step or place.width) + BUDGET[field].offset
        return int.from_bytes(self.region.read_bytes()[offset : offset + 8], "little")


def share_of(process: subprocess.Popen[str]) -> float:
    """Wait for a process's end and return the percent that it used. Raises AssertionError."""
    out, err = process.communicate(timeout=TIMEOUT_S)
    assert process.returncode == 0, f"{out}{err}"
    assert not err, err
    return float(out)


def most(limit: int, load: Load | Pattern, points: float) -> float:
    """Return the most that a window may use: the limit, so many points, and what was saved up."""
    return limit + points + limit * BURST_S / load.seconds


def best_of(
    attempts: int, limit: int, load: Load | Pattern, points: float, run: Callable[[], float]
) -> None:
    """Check that no run uses more than a limit, and that one of some comes near to it.

    On a machine that is busy with other things a process may not get to use what it may.
    """
    used: list[float] = []
    for _ in range(attempts):
        used.append(run())
        assert used[-1] <= most(limit, load, points)
        if used[-1] >= limit - points:
            return
    raise AssertionError(f"limit {limit} percent, used {used}")
