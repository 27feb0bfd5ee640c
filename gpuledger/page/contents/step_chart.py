"""Step chart: the usage and the limit of a quota line over time, as paths of an SVG.

The chart is `WIDTH` by `HEIGHT` units and stretches to its place, so its labels are text beside it.
"""

from typing import Final

import msgspec

from projections.queries.timeline.usage_steps import UsagePoint

WIDTH: Final = 1000
HEIGHT: Final = 200


class ChartMark(msgspec.Struct, frozen=True):
    """A vertical line at an event: its place from the left, and its title."""

    x: int
    kind: str
    title: str


class StepChart(msgspec.Struct, frozen=True):
    """A chart: `used` and `reserved` are areas, `limit` is a line. `top` is the highest amount."""

    used: str
    reserved: str
    limit: str
    top: int
    marks: list[ChartMark]


def step_chart(
    points: list[UsagePoint], begin: int, end: int, marks: list[tuple[int, str, str]]
) -> StepChart:
    """Return the chart of a line's points between two times in µs of Unix time.

    `marks` are time, kind and title. A mark outside of the times is left out.
    """
    top = max([1, *(max(point.limit, point.used) for point in points)])
    scale = _Scale(begin, max(end, begin + 1), top)
    return StepChart(
        used=scale.area([(point.time, point.used) for point in points]),
        reserved=scale.area([(point.time, point.reserved) for point in points]),
        limit=scale.steps([(point.time, point.limit) for point in points]),
        top=top,
        marks=[
            ChartMark(scale.x(time), kind, title)
            for time, kind, title in marks
            if begin <= time <= end
        ],
    )


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

    def steps(self, values: list[tuple[int, int]]) -> str:
        """Return a line that is level between the values."""
        if not values:
            return ""
        first, *rest = values
        path, height = [f"M{self.x(first[0])} {self.y(first[1])}"], self.y(first[1])
        for time, amount in rest:
            if self.y(amount) != height:
                height = self.y(amount)
                path.append(f"H{self.x(time)}V{height}")
        return "".join([*path, f"H{WIDTH}"])

    def area(self, values: list[tuple[int, int]]) -> str:
        """Return the area below the values."""
        if not values:
            return ""
        return f"{self.steps(values)}V{HEIGHT}H{self.x(values[0][0])}Z"
