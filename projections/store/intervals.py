"""Where a closed interval is filed, so that "which ones contain P?" looks in few places.

Positions form a binary tree: every block of 2^n positions has a middle. An interval is filed at
the middle of the smallest block that contains it, its **fork**. The intervals that contain a
position are then all filed at the middles of the blocks around that position: one per level, so
some forty places in a log of a million million records. An index by the opening or closing
position alone would have to read half of the history.
"""

from typing import Final

LEVELS: Final = 48
"""Blocks have at most 2^48 positions; a log does not live to see more."""


def fork(opened: int, closed: int) -> int:
    """Return where the interval from `opened` up to, but without, `closed` is filed.

    The block is taken to hold `closed` as well; that may be one size more than needed.
    """
    return _middle(opened, (opened ^ closed).bit_length())


def forks_around(position: int, last: int) -> list[int]:
    """Return where every interval is filed that contains a position and is closed by `last`."""
    levels = min(LEVELS, max(position, last).bit_length())
    return sorted({_middle(position, level) for level in range(levels + 1)})


def _middle(position: int, level: int) -> int:
    """Return the middle of the block of 2^level positions around a position."""
    return (position >> level << level) + (1 << level >> 1)
