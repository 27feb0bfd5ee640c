"""Tunes the garbage collector for a large, slowly growing state and many short-lived objects.

Reference counting frees the short-lived objects. With its defaults, the collector examines young
objects thousands of times per second without effect. Sometimes it examines the whole state, which
blocks the event loop.

A collection of young objects blocks the event loop, too: 50,000 of a service took 12 to 23 ms on
busy cores. Many collections of few objects compute about as long as one of many.
"""

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

YOUNG_MAX: Final = 6_000
"""Number of new objects that starts a collection, of one to two milliseconds; the interpreter's
default is 700. A record of 1,000 commands has about 4,000 until its answers are sent, and a
collection among them finds nothing to free."""

OLDER_AFTER: Final = (5, 1_600)
"""Numbers of collections of a generation that start one of the next older generation."""


def collect_less_often() -> None:
    """Collect less often. Call it once, when the process starts."""
    gc.set_threshold(YOUNG_MAX, *OLDER_AFTER)


def freeze_existing() -> None:
    """Exclude all present objects from later collections."""
    gc.collect()
    gc.freeze()


@contextmanager
def freeze_afterwards() -> Iterator[None]:
    """Collect no garbage in the block, and exclude all objects at its end from later collections.

    For the reading of a state that lives as long as the process: any collection would visit all of
    it and free nothing. A block that raises freezes nothing. Garbage is collected before the block,
    because frozen garbage stays in memory.
    """
    gc.collect()
    gc.disable()
    try:
        yield
        gc.freeze()
    finally:
        gc.enable()
