"""Fuzz loop: runs a target on changed inputs for some seconds, and stores an input that fails.

The arguments are `SECONDS SEED DIRECTORY`, as for the targets in C. Any exception is a finding.
"""

import signal
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path

from mutating import Mutator

Targets = Callable[[int], tuple[Mutator, Callable[[bytes], None]]]

INPUT_SECONDS_MAX = 1.0
"""An input that takes longer is a finding, because tenants must not delay readers."""

AGAIN_SECONDS = 0.1
"""Interval of repeated interrupts, for a target that handles the first one as its own error."""


class TooLong(Exception):
    """An input takes longer than INPUT_SECONDS_MAX."""


def main(targets: Targets) -> int:
    """Run a target; after a finding, return 1 and leave the input in DIRECTORY/found."""
    seconds, seed, directory = float(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3])
    mutator, read_input = targets(seed)
    signal.signal(signal.SIGPROF, _interrupt)
    count, until = 0, time.monotonic() + seconds
    while time.monotonic() < until:
        data = mutator.next()
        begun = time.process_time()
        try:
            _bounded(read_input, data)
            taken = time.process_time() - begun
            assert taken < INPUT_SECONDS_MAX, f"it took {taken:.1f} s"
        except Exception:  # noqa: BLE001 - any exception is a finding
            traceback.print_exc()
            (directory / "found").write_bytes(data)
            return 1
        count += 1
    print(f"{count} inputs: nothing found")
    return 0


def _bounded(read_input: Callable[[bytes], None], data: bytes) -> None:
    """Run an input, and interrupt it after too much processor time: it may never end."""
    signal.setitimer(signal.ITIMER_PROF, INPUT_SECONDS_MAX, AGAIN_SECONDS)
    try:
        read_input(data)
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)


def _interrupt(*_: object) -> None:
    raise TooLong(f"it takes longer than {INPUT_SECONDS_MAX:g} s")
