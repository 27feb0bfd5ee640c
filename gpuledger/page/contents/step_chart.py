"""Step chart: the usage and the limit of a quota line over time, as paths of an SVG.

The chart is `WIDTH` by `HEIGHT` units and stretches to its place, so its labels are text beside it.
Events are ticks below the axis, so that they cover no area. Those close together are one longer
tick.
"""

from collections.abc import Iterable
from itertools import groupby
from typing import Final

import msgspec

from gpuledger.page.quantity_texts import time_text
from projections.queries.timeline.usage_steps import LineStretch

WIDTH: Final = 1000
HEIGHT: Final = 200
TICK_TOP: Final = HEIGHT + 6
"""The upper end of ticks; the template's chart has 230 units."""

TICK_WIDTH: Final = 10
"""Events of so many units are one tick, so a chart has at most 101 of each kind."""

TITLES_MAX: Final = 4
"""Most events that a tick names; more are counted."""

_TICK_LENGTHS: Final = range(8, 21, 2)
"""Lengths of ticks, by the number of events."""

LIMIT_CHANGE: Final = "limit-change"
_NOUNS: Final = {"event": "events", LIMIT_CHANGE: "changes of the limit"}

EventMark = tuple[int, str, str]
"""Time in µs of Unix time, kind and title of an event; a kind is a key of `_NOUNS`."""


class ChartTick(msgspec.Struct, frozen=True):
    """A tick for events of a kind: its place from the left, its lower end, and its title."""

    x: int
    bottom: int
    kind: str
    title: str


class StepChart(msgspec.Struct, frozen=True):
    """A chart: `used` and `reserved` are areas, `limit` is a line. `top` is the highest amount."""

    used: str
    reserved: str
    limit: str
    top: int
    ticks: list[ChartTick]


def step_chart(
    stretches: list[LineStretch], begin: int, end: int, marks: Iterable[EventMark]
) -> StepChart:
    """Return the chart of a line between two times in µs of Unix time.

    It has gaps where the line was not open. A mark outside of the times is left out.
    """
    points = [point for stretch in stretches for point in stretch.points]
    top = max([1, *(max(point.limit, point.used) for point in points)])
    scale = _Scale(begin, max(end, begin + 1), top)
    return StepChart(
        used="".join(scale.area(stretch, "used") for stretch in stretches),
        reserved="".join(scale.area(stretch, "reserved") for stretch in stretches),
        limit="".join(scale.steps(stretch, "limit") for stretch in stretches),
        top=top,
        ticks=_ticks(scale, [mark for mark in marks if begin <= mark[0] <= end]),
    )


def _ticks(scale: "_Scale", marks: Iterable[EventMark]) -> list[ChartTick]:
    """Return ticks by kind and place."""

    def place(mark: EventMark) -> tuple[str, int]:
        return mark[1], scale.x(mark[0]) // TICK_WIDTH

    ordered = sorted(marks, key=lambda mark: (mark[1], mark[0]))
    return [_tick(scale, list(near)) for _, near in groupby(ordered, place)]


def _tick(scale: "_Scale", near: list[EventMark]) -> ChartTick:
    """Return the tick of events of a kind, by time."""
    (first, kind, _), last = near[0], near[-1][0]
    title = "; ".join(title for _, _, title in near[:TITLES_MAX])
    if len(near) > TITLES_MAX:
        title = f"{len(near)} {_NOUNS[kind]}, {time_text(first)} to {time_text(last)}"
    length = _TICK_LENGTHS[min(len(near), len(_TICK_LENGTHS)) - 1]
    return ChartTick(scale.x((first + last) // 2), TICK_TOP + length, kind, title)


class _Scale(msgspec.Struct, frozen=True):
    """Maps times and amounts to units of the chart."""

    begin: int
    end: int
    top: int

    def x(self, time: int) -> int:
        clipped = min(max(time, self.begin), self.end)
        return WIDTH * (clipped - self.begin) // (self.end - self.begin)

    def y(self, amount: int) -> int:
        return HEIGHT - HEIGHT * max(0, amount) // self.top

    def steps(self, stretch: LineStretch, amount: str) -> str:
        """Return a line through an amount of the points, which is level between them."""
        first, *rest = [(point.time, self.y(getattr(point, amount))) for point in stretch.points]
        path, height = [f"M{self.x(first[0])} {first[1]}"], first[1]
        for time, other in rest:
            if other != height:
                height = other
                path.append(f"H{self.x(time)}V{height}")
        return "".join([*path, f"H{self.x(stretch.closed)}"])

    def area(self, stretch: LineStretch, amount: str) -> str:
        """Return the area below the line."""
        return f"{self.steps(stretch, amount)}V{HEIGHT}H{self.x(stretch.points[0].time)}Z"
