"""Interval index: the forks by which a query as of a past position reads few rows.

Positions form a binary tree: every block of 2^n positions has a middle. An interval is stored under
the middle of the smallest block that contains it, its **fork**. All intervals that contain a
position are stored under the middles of the blocks around that position: one per level, so about
forty in a log of 10^12 records. An index by the opening or closing position alone would have to
read half of the history.
"""

from typing import Final

LEVELS: Final = 48
"""Blocks have at most 2^48 positions, more than any log will have."""


def fork(opened: int, closed: int) -> int:
    """Return the fork of the interval from `opened` to `closed`, without `closed`.

    The block includes `closed` as well, which may be one size more than needed.
    """
    return _middle(opened, (opened ^ closed).bit_length())


def forks_around(position: int, last: int) -> list[int]:
    """Return the forks of all intervals that contain a position and are closed by `last`."""
    levels = min(LEVELS, max(position, last).bit_length())
    return sorted({_middle(position, level) for level in range(levels + 1)})


def _middle(position: int, level: int) -> int:
    """Return the middle of the block of 2^level positions around a position."""
    return (position >> level << level) + (1 << level >> 1)
