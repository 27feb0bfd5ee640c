"""Quota bars: one line of a quota as the segments of a bar, for the macro `quota_bar`.

A bar is `WIDTH` units wide. It spans the larger of limit and used amount, so an amount over the
limit is visible beside the mark of the limit.
"""

from typing import Final

import msgspec

from projections.queries.quota_usage import Usage

WIDTH: Final = 1000


class BarSegment(msgspec.Struct, frozen=True):
    """A part of a bar: `kind` is committed, reserved, over or free."""

    kind: str
    x: int
    width: int


class QuotaBar(msgspec.Struct, frozen=True):
    """A bar: its segments from the left, and the place of the limit's mark."""

    segments: tuple[BarSegment, ...]
    mark: int


def quota_bar(line: Usage) -> QuotaBar:
    """Return the bar of a line. The parts over the limit are `over`, committed ones first."""
    over = max(0, line.used - max(0, line.limit))
    reserved = max(0, line.reserved)
    committed = max(0, line.used - reserved)
    within_reserved = max(0, reserved - over)
    within_committed = max(0, committed - max(0, over - reserved))
    amounts = {
        "committed": within_committed,
        "reserved": within_reserved,
        "over": over,
        "free": max(0, line.limit - line.used),
    }
    whole = max(1, line.limit, line.used)
    segments, begin = [], 0
    for kind, amount in amounts.items():
        end = begin + amount
        x, until = WIDTH * begin // whole, WIDTH * end // whole
        if amount:
            segments.append(BarSegment(kind, x, max(1, until - x)))
        begin = end
    return QuotaBar(tuple(segments), min(WIDTH, WIDTH * max(0, line.limit) // whole))
