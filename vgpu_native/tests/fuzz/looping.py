"""Looping: run a target on changed inputs for so many seconds, and keep what it stumbles over.

`SECONDS SEED DIRECTORY`, as the targets in C are called. Whatever a target raises is a finding.
"""

import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path

from mutating import Mutator

Targets = Callable[[int], tuple[Mutator, Callable[[bytes], None]]]

INPUT_SECONDS_MAX = 1.0
"""An input that takes longer is a finding: nobody has to wait for what a tenant writes."""


def main(targets: Targets) -> int:
    """Run a target; the status is 1 when something is found, and DIRECTORY/found is the input."""
    seconds, seed, directory = float(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3])
    mutator, one = targets(seed)
    count, until = 0, time.monotonic() + seconds
    while time.monotonic() < until:
        data = mutator.next()
        begun = time.process_time()
        try:
            one(data)
            taken = time.process_time() - begun
            assert taken < INPUT_SECONDS_MAX, f"it took {taken:.1f} s"
        except Exception:  # noqa: BLE001 - whatever it is, it is what is looked for
            traceback.print_exc()
            (directory / "found").write_bytes(data)
            return 1
        count += 1
    print(f"{count} inputs: nothing found")
    return 0
