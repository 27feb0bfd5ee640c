"""Fresh process: each measurement runs in a process of its own, without other memory and garbage.

The process gets the module and name of a function; arguments and result are JSON.
"""

import asyncio
import importlib
import statistics
import subprocess
import sys
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any

import msgspec
import uvloop

from ledger.runtime import gc_tuning, log_setup

ROOT = Path(__file__).parents[3]
SECONDS_MAX = 3_600
"""A measurement that takes longer is broken."""

_READY = b"ready\n"

Measure = Callable[..., Coroutine[Any, Any, dict[str, float]]]


class MeasuringProcess:
    """A measurement that runs; `result` waits for its end."""

    def __init__(self, function: Measure, arguments: dict[str, Any]) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", __spec__.name, function.__module__, function.__name__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=ROOT,
        )
        assert self._process.stdin is not None
        self._process.stdin.write(msgspec.json.encode(arguments) + b"\n")
        self._process.stdin.flush()

    @property
    def pid(self) -> int:
        """The process's id."""
        return self._process.pid

    def result(self) -> dict[str, float]:
        """Return the function's result. Raises RuntimeError when the function failed."""
        out, _ = self._process.communicate(timeout=SECONDS_MAX)
        if self._process.returncode:
            raise RuntimeError(f"a measurement ended with status {self._process.returncode}")
        return msgspec.json.decode(out.splitlines()[-1], type=dict[str, float])

    def wait_ready(self) -> None:
        """Wait until the measurement has come to `wait_for_go`. Raises RuntimeError."""
        assert self._process.stdout is not None
        if self._process.stdout.readline() != _READY:
            raise RuntimeError("a measurement ended before it was ready")

    def go(self) -> None:
        """Let a measurement that waits in `wait_for_go` continue."""
        assert self._process.stdin is not None
        self._process.stdin.write(b"go\n")
        self._process.stdin.flush()

    def end(self) -> None:
        """End a measurement that a failure of another one left behind."""
        self._process.kill()
        self._process.wait()


def start(function: Measure, **arguments: Any) -> MeasuringProcess:
    """Start a measurement in a fresh process."""
    return MeasuringProcess(function, arguments)


def fresh(function: Measure, **arguments: Any) -> dict[str, float]:
    """Run a measurement in a fresh process to its end."""
    return start(function, **arguments).result()


def median(samples: Sequence[dict[str, float]]) -> dict[str, float]:
    """Return the median of every number."""
    return {name: statistics.median(sample[name] for sample in samples) for name in samples[0]}


def percentile(numbers: Sequence[float], share: float) -> float:
    """Return the number below which a share of the numbers lies."""
    ordered = sorted(numbers)
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))]


async def wait_for_go() -> None:
    """Wait, in a measuring process, for `MeasuringProcess.go`."""
    sys.stdout.buffer.write(_READY)
    sys.stdout.buffer.flush()
    await asyncio.to_thread(sys.stdin.buffer.readline)


def _main() -> None:
    gc_tuning.collect_less_often()
    log_setup.configure("error", "console")  # to standard error: standard output carries the result
    module, name = sys.argv[1:]
    function: Measure = getattr(importlib.import_module(module), name)
    arguments = msgspec.json.decode(sys.stdin.buffer.readline())
    numbers = uvloop.run(function(**arguments))
    print(msgspec.json.encode(numbers).decode(), flush=True)


if __name__ == "__main__":
    _main()
