"""Print which share of a device's time programs use under limits, as a table in Markdown.

`python tests/time/shares.py BUILD [ROW...]`, run by `make shares`. A row is chosen by a part of its
name; without one all are measured. Other work on the machine makes shares too small.
"""

import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

LIMITS = (10, 30, 50, 90)
US, MS = 1_000, 1_000_000
EVENTS = {"VGPU_STUB_EVENT_NS": "1700", "VGPU_STUB_TICK_NS": "500"}


class Row(NamedTuple):
    """A load: `time/patterns` with its arguments, in so many processes of one container."""

    name: str
    way: str
    short_ns: int
    long_ns: int = 0
    period: int = 1
    processes: int = 1
    seconds: float = 1.0
    warm: float = 1.0
    settings: tuple[tuple[str, str], ...] = ()


ROWS = (
    Row("5 us", "queue", 5 * US),
    Row("5 us, an event takes 1.7 us", "queue", 5 * US, settings=tuple(EVENTS.items())),
    Row("20 us", "queue", 20 * US),
    Row("20 us, an event takes 1.7 us", "queue", 20 * US, settings=tuple(EVENTS.items())),
    Row("200 us", "queue", 200 * US),
    Row("2,000 us", "queue", 2 * MS),
    Row("200 ms", "queue", 200 * MS, seconds=6.0, warm=2.0),
    Row("2 and 10 us, period 2", "queue", 2 * US, 10 * US, 2),
    Row("20 us and 1 ms, period 4", "queue", 20 * US, 1 * MS, 4),
    Row("2 us and 2 ms, period 8", "queue", 2 * US, 2 * MS, 8),
    Row("5 ms, each kernel launched once", "fresh-queue", 5 * MS),
    Row("50 us, 2 processes", "queue", 50 * US, processes=2),
    Row("50 us, 4 processes", "queue", 50 * US, processes=4),
    Row("50 us, 8 processes", "queue", 50 * US, processes=8),
)


def share(build: Path, row: Row, limit: int) -> float:
    """Return the percent of the time for which the device was busy."""
    numbers = (row.seconds, row.warm, row.period, row.short_ns, row.long_ns)
    command = [str(build / "tests/time/patterns"), row.way, *map(str, numbers)]
    with tempfile.TemporaryDirectory() as directory:
        environment = {
            **os.environ,
            **dict(row.settings),
            "LD_PRELOAD": str(build / "libvgpu.so"),
            "CUDA_DEVICE_MEMORY_SHARED_CACHE": f"{directory}/region",
            "CUDA_DEVICE_SM_LIMIT": str(limit),
            "VGPU_STUB_STATE": f"{directory}/machine",
        }
        started = [
            subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)
            for _ in range(row.processes)
        ]
        return max(float(process.communicate(timeout=60)[0]) for process in started)


def main(build: Path, parts: list[str]) -> None:
    """Print the table, row by row."""
    print("| kernels |", " | ".join(f"{limit} %" for limit in LIMITS), "|")
    print("|---|" + "---|" * len(LIMITS))
    for row in ROWS:
        if parts and not any(part in row.name for part in parts):
            continue
        cells = [f"{share(build, row, limit):.1f}" for limit in LIMITS]
        print("|", " | ".join([row.name, *cells]), "|", flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve(), sys.argv[2:])
