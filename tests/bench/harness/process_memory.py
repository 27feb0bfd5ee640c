"""Process memory: the memory of this process by the count of the kernel, in bytes."""

import os
from pathlib import Path
from typing import Final

from ledger.runtime import gc_tuning

_SELF: Final = Path("/proc/self")
_FORGET_PEAK: Final = "5"
"""Value for `clear_refs` that resets the kernel's peak: see proc(5)."""


def resident() -> int:
    """Return how much is resident now."""
    return int((_SELF / "statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def settled() -> int:
    """Return how much is resident after a collection of garbage."""
    gc_tuning.freeze_existing()
    return resident()


def forget_peak() -> None:
    """Let `peak` begin with what is resident now."""
    (_SELF / "clear_refs").write_text(_FORGET_PEAK)


def peak() -> int:
    """Return the most that was resident at once since `forget_peak`."""
    for line in (_SELF / "status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    raise RuntimeError("/proc/self/status has no VmHWM")
