"""Looping: run a target on changed inputs for so many seconds, and keep what it stumbles over.

`SECONDS SEED DIRECTORY`, as the targets in C are called. Whatever a target raises is a finding.
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
"""An input that takes longer is a finding: nobody has to wait for what a tenant writes."""

AGAIN_SECONDS = 0.1
"""How often it is said again, where what runs takes it for an error of its own."""


class TooLong(Exception):
    """An input takes longer than it may."""


def main(targets: Targets) -> int:
    """Run a target; the status is 1 when something is found, and DIRECTORY/found is the input."""
    seconds, seed, directory = float(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3])
    mutator, one = targets(seed)
    signal.signal(signal.SIGPROF, _interrupt)
    count, until = 0, time.monotonic() + seconds
    while time.monotonic() < until:
        data = mutator.next()
        begun = time.process_time()
        try:
            _bounded(one, data)
            taken = time.process_time() - begun
            assert taken < INPUT_SECONDS_MAX, f"it took {taken:.1f} s"
        except Exception:  # noqa: BLE001 - whatever it is, it is what is looked for
            traceback.print_exc()
            (directory / "found").write_bytes(data)
            return 1
        count += 1
    print(f"{count} inputs: nothing found")
    return 0


def _bounded(one: Callable[[bytes], None], data: bytes) -> None:
    """Run an input, and interrupt it when it has computed for too long: it may never end."""
    signal.setitimer(signal.ITIMER_PROF, INPUT_SECONDS_MAX, AGAIN_SECONDS)
    try:
        one(data)
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)


def _interrupt(*_: object) -> None:
    raise TooLong(f"it takes longer than {INPUT_SECONDS_MAX:g} s")
