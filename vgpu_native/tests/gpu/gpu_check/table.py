"""Measure libvgpu.so and print tables. Uses the standard library only, as nodes may lack packages.

Without `--stub`, the measurement uses this machine's driver. On the stub, the figures show the
processor time that the library adds, and that the programs work. They show nothing about a GPU.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path

MIB = 2**20
LIMIT_MIB = 4096
CALLS_MIB = 8192
"""Enough for ten thousand small allocations, which a driver rounds up."""

KERNEL_NS = 2_000_000
SHARES = (10, 30, 50, 70, 90)
SECONDS_MAX = 300
ABSENT = 77


class Failed(Exception):
    """A program ended with an error; the message has its standard error."""


class Absent(Exception):
    """The software to measure is not on this machine."""


class Bench:
    """The programs of a bundle, and their start."""

    def __init__(self, bundle: Path, folder: Path, stub: bool) -> None:
        """Use the folder for region files, and with `stub` the stub instead of the driver."""
        self.bundle, self.folder, self.stub = bundle, folder, stub
        self.regions = 0

    def run(
        self,
        command: list[str],
        memory_mib: int | None = None,
        cores: int = 100,
        kernel_ns: int = 0,
    ) -> list[list[str]]:
        """Return the output of a program, as tab-separated cells of each line.

        A memory limit preloads the library. `kernel_ns` is for the stub. Raises Failed, and Absent
        if the software to measure is missing.
        """
        env = dict(os.environ)
        if self.stub:
            env["LD_LIBRARY_PATH"] = str(self.bundle / "stub")
            env["VGPU_STUB_STATE"] = str(self.folder / "stub")
            env["VGPU_STUB_KERNEL_NS"] = str(kernel_ns)
        if memory_mib is not None:
            env.update(self._limits(memory_mib, cores))
        done = subprocess.run(
            command, env=env, capture_output=True, text=True, timeout=SECONDS_MAX, check=False
        )
        if done.returncode == ABSENT:
            raise Absent
        if done.returncode:
            raise Failed(f"{' '.join(command)}: {done.stderr.strip()}")
        return [line.split("\t") for line in done.stdout.splitlines()]

    def program(self, name: str) -> str:
        """Return the path of a program."""
        return str(self.bundle / "bin" / name)

    def _limits(self, memory_mib: int, cores: int) -> dict[str, str]:
        self.regions += 1
        return {
            "LD_PRELOAD": str(self.bundle / "libvgpu.so"),
            "CUDA_DEVICE_MEMORY_LIMIT_0": f"{memory_mib}m",
            "CUDA_DEVICE_SM_LIMIT": str(cores),
            "GPU_CORE_UTILIZATION_POLICY": "force",
            "CUDA_DEVICE_MEMORY_SHARED_CACHE": str(self.folder / f"region-{self.regions}"),
        }


def show(title: str, head: list[str], body: Iterable[Iterable[object]]) -> None:
    """Print a table."""
    rows = [head, *([str(cell) for cell in row] for row in body)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(head))]
    rows.insert(1, ["-" * width for width in widths])
    print("\n" + title)
    for row in rows:
        print("  ".join(cell.ljust(widths[i]) for i, cell in enumerate(row)).rstrip())


def calls(bench: Bench, _: int) -> bool:
    """Compare the cost of each call, without a verdict, because machines differ."""
    command = [bench.program("calls")]
    native = dict(bench.run(command))
    limited = dict(bench.run(command, CALLS_MIB))
    both = dict(bench.run(command, CALLS_MIB, 99))
    rows = []
    for name in native:
        bare, memory, time = (float(costs[name]) for costs in (native, limited, both))
        cells = [f"{number:,.1f}" for number in (bare, memory, memory - bare, time - bare)]
        rows.append([name, *cells])
    head = ["call, ns", "native", "with a limit", "added", "added with a limit of time, too"]
    show("What calls cost", head, rows)
    return True


def limits(bench: Bench, _: int) -> bool:
    """Take every allocator to the limit and one granule above it."""
    rows = bench.run([bench.program("limits"), bench.program("view")], LIMIT_MIB)
    head = ["allocator", "MiB free and given", "MiB counted besides", "at the limit and above"]
    show(f"A limit of {LIMIT_MIB:,} MiB", head, rows)
    return all(row[3] == "ok" for row in rows)


def shares(bench: Bench, seconds: int) -> bool:
    """Compare the share of the device's time with its limit, on average and at worst."""
    command = [bench.program("busy"), str(seconds), str(KERNEL_NS)]
    whole = statistics.mean(int(row[0]) for row in bench.run(command, kernel_ns=KERNEL_NS)[1:])
    rows, good = [], True
    for limit in SHARES:
        counts = [int(row[0]) for row in bench.run(command, CALLS_MIB, limit, KERNEL_NS)]
        windows = [100 * ended / whole for ended in counts[1:]]
        error = statistics.mean(windows) - limit
        good = good and abs(error) <= 3 and max(windows) <= limit + 8
        rows.append([limit, *(f"{x:.1f}" for x in (error + limit, error, max(windows)))])
    head = ["limit, %", "share, %", "error, points", "the most in a second, %"]
    show(f"Time of the device, {seconds} s each, {whole:.0f} kernels/s alone", head, rows)
    return good


def recovery(bench: Bench, _: int) -> bool:
    """Measure the time until memory of a killed process is available again."""
    durations = [float(row[0]) for row in bench.run([bench.program("recovery"), "9"], LIMIT_MIB)]
    row = [f"{number:,.0f}" for number in (statistics.median(durations), max(durations))]
    show("From SIGKILL to the memory's next owner", ["median, µs", "worst, µs"], [row])
    return True


def torch(bench: Bench, _: int) -> bool:
    """Run PyTorch up to the limit, if it is installed."""
    command = [sys.executable, str(Path(__file__).with_name("with_torch.py"))]
    try:
        if bench.stub:
            raise Absent
        rows = bench.run(command, LIMIT_MIB)
    except Absent:
        print("\nPyTorch: not here, not tried")
        return True
    show("PyTorch", ["MiB given", "refused by", "MiB in total", "MiB free at first"], rows)
    return rows[0][1] == "OutOfMemoryError" and int(rows[0][2]) <= LIMIT_MIB


def described(bench: Bench) -> str:
    """Return the description of the measured device."""
    if bench.stub:
        return "the STUB driver: no GPU was measured"
    command = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=True)
    except (OSError, subprocess.SubprocessError):
        return "the machine's driver (nvidia-smi does not answer)"
    return done.stdout.splitlines()[0]


def verdict(missed: list[str], broken: int) -> str:
    """Return the verdict of the tables; limits count as held only if all were measured."""
    if missed:
        return "NOT as promised: " + ", ".join(missed)
    return f"NOT measured: {broken} programs failed" if broken else "All limits held"


def main() -> int:
    """Run everything; the status is 1 when a limit did not hold, 2 when a program failed."""
    parser = argparse.ArgumentParser(prog="run", description=__doc__)
    parser.add_argument("--stub", action="store_true", help="use the stub driver, not a GPU")
    parser.add_argument("--seconds", type=int, default=10, help="for each share of time")
    parser.add_argument("--bundle", type=Path, required=True, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    missed, broken = [], []
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(arguments.bundle.resolve(), Path(folder), arguments.stub)
        print("Measured on " + described(bench))
        for part in (calls, limits, shares, recovery, torch):
            try:
                good = part(bench, arguments.seconds)
            except (Failed, subprocess.TimeoutExpired) as error:
                broken.append(f"{part.__name__}: {error}")
            else:
                missed += [] if good else [part.__name__]
    for text in broken:
        print("failed: " + text, file=sys.stderr)
    print("\n" + verdict(missed, len(broken)))
    return 2 if broken else int(bool(missed))


if __name__ == "__main__":
    sys.exit(main())
