"""Tunes the garbage collector for a large, slowly growing state and many short-lived objects.

Reference counting frees the short-lived objects. With its defaults, the collector examines young
objects thousands of times per second without effect. Sometimes it examines the whole state, which
blocks the event loop.
"""

import gc
from typing import Final

YOUNG_MAX: Final = 50_000
"""Number of surviving new objects that starts a collection; the interpreter's default is 700."""

OLDER_AFTER: Final = (20, 50)
"""Numbers of collections of a generation that start one of the next older generation."""


def collect_less_often() -> None:
    """Collect less often. Call it once, when the process starts."""
    gc.set_threshold(YOUNG_MAX, *OLDER_AFTER)


def freeze_existing() -> None:
    """Exclude all present objects from later collections."""
    gc.collect()
    gc.freeze()
