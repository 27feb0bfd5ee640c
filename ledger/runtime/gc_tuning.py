"""Tunes the garbage collector for this kind of process: a large state that only grows slowly,
and very many short-lived objects that reference counting frees at once.

Left alone, the collector looks at the young objects thousands of times per second and finds
nothing, and now and then at the whole state, which holds the event loop for long.
"""

import gc
from typing import Final

YOUNG_MAX: Final = 50_000
"""More surviving new objects than this start a collection; the interpreter's default is 700."""

OLDER_AFTER: Final = (20, 50)
"""So many collections of a younger generation lead to one of the next older."""


def collect_less_often() -> None:
    """Collect less often. Call it once, when the process starts."""
    gc.set_threshold(YOUNG_MAX, *OLDER_AFTER)


def freeze_existing() -> None:
    """Leave everything that exists now out of all later collections."""
    gc.collect()
    gc.freeze()
