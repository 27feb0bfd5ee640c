"""Run all fuzz targets, which read the data that tenants can write, at the same time.

Run it by `make fuzz` or `python vgpu_native/tests/fuzz/run.py --seconds 600`. It stores a finding
in a file and prints the command that repeats it.
"""

import argparse
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Final, NamedTuple

HERE: Final = Path(__file__).parent
NATIVE: Final = HERE.parents[1]
BUILD: Final = Path(os.environ.get("VGPU_BUILD", NATIVE / "build")).absolute()
BUILT: Final = BUILD / "fuzz"
BUILD_SECONDS: Final = 300
GRACE_SECONDS: Final = 60
LENGTH_BYTES: Final = 8
SANITIZERS: Final = {"ASAN_OPTIONS": "detect_leaks=0", "UBSAN_OPTIONS": "print_stacktrace=1"}


class Target(NamedTuple):
    """A program that is fuzzed, and the folder of its first inputs."""

    name: str
    command: tuple[str, ...]
    corpus: str = ""

    def started(self, seconds: float, seed: int, folder: Path) -> "subprocess.Popen[str]":
        """Start it."""
        folder.mkdir(parents=True, exist_ok=True)
        for left in folder.iterdir():
            left.unlink()
        corpus = [str(HERE / "corpus" / self.corpus)] if self.corpus else []
        return subprocess.Popen(
            [*self.command, f"{seconds:g}", str(seed), str(folder), *corpus],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env={**os.environ, **SANITIZERS},
        )


def _python(name: str) -> Target:
    return Target(name.replace("_", " "), (sys.executable, str(HERE / f"{name}.py")))


TARGETS: Final = (
    Target("environment", (str(BUILT / "environment"),), "environment"),
    Target("region", (str(BUILT / "region"),), "region"),
    _python("region_reader"),
    _python("annotations"),
    _python("plugin_requests"),
)


def main() -> int:
    """Run all targets; the status is 1 when one of them found something."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--only", choices=[target.name for target in TARGETS], action="append")
    arguments = parser.parse_args()
    variables = [f"PYTHON={sys.executable}", f"BUILD={BUILD}"]
    make = ["make", "-s", "-C", str(NATIVE), *variables, "fuzzers"]
    subprocess.run(make, check=True, timeout=BUILD_SECONDS)
    print(f"seed {arguments.seed}, {arguments.seconds:g} s", flush=True)
    running = [
        (target, folder, target.started(arguments.seconds, arguments.seed, folder))
        for target in TARGETS
        if not arguments.only or target.name in arguments.only
        for folder in [BUILT / "found" / target.name.replace(" ", "-")]
    ]
    ended = [_ended(*run, arguments.seconds + GRACE_SECONDS) for run in running]
    return int(not all(ended))


def _ended(target: Target, folder: Path, process: "subprocess.Popen[str]", seconds: float) -> bool:
    """Wait for a target, print its result, and return whether it found nothing."""
    try:
        output, _ = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        process.kill()
        output, _ = process.communicate()
    print(f"{target.name}: {output.strip()}", flush=True)
    if process.returncode == 0:
        return True
    _take_last(folder)
    print(f"  the input is {folder / 'found'}; status {process.returncode}", flush=True)
    if target.corpus:
        command = " ".join([*target.command, "0 1", str(folder), str(folder)])
        print(f"  run it again, with what else was kept there: {command}", flush=True)
    return False


def _take_last(folder: Path) -> None:
    """Write the last input to the file `found`, if a crashed target did not write it itself."""
    last, finding = folder / "last", folder / "found"
    if last.exists() and not finding.exists():
        content = last.read_bytes()
        length = int.from_bytes(content[:LENGTH_BYTES], "little")
        finding.write_bytes(content[LENGTH_BYTES:][:length])


if __name__ == "__main__":
    sys.exit(main())
