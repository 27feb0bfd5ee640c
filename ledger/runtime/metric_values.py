"""Metric values: counters and histograms as plain numbers, which a scrape turns into samples.

The objects of prometheus_client take a lock for each change. These values change in the event loop
only, and a scrape reads them there. A series has no sample `_created`, which would double the
series of a counter for a time that no rule reads.
"""

from bisect import bisect_left
from collections.abc import Callable
from typing import Final

import prometheus_client
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString

Labels = tuple[str, ...]

OTHER: Final = "other"
"""The label of series beyond the bound."""


class Histogram:
    """The number of values by size, and their sum."""

    __slots__ = ("_bounds", "_counts", "_sum")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        """Count values up to each of these bounds, and larger ones."""
        self._bounds, self._counts, self._sum = bounds, [0] * (len(bounds) + 1), 0.0

    def observe(self, value: float) -> None:
        """Count a value; a bound belongs to the values below it."""
        self._counts[bisect_left(self._bounds, value)] += 1
        self._sum += value

    def add_to(self, metric: prometheus_client.Metric, labels: dict[str, str]) -> None:
        """Add the samples of this series."""
        below = 0
        for bound, count in zip((*self._bounds, float("inf")), self._counts, strict=True):
            below += count
            at = {**labels, "le": floatToGoString(bound)}  # type: ignore[no-untyped-call]
            metric.add_sample(f"{metric.name}_bucket", at, below)
        metric.add_sample(f"{metric.name}_count", labels, below)
        metric.add_sample(f"{metric.name}_sum", labels, self._sum)


class Counter:
    """A number that only rises; `count` is raised directly, or `source` returns the number."""

    __slots__ = ("count", "source")

    def __init__(self) -> None:
        self.count = 0
        self.source: Callable[[], float] | None = None

    def add_to(self, metric: prometheus_client.Metric, labels: dict[str, str]) -> None:
        """Add the samples of this series."""
        value = self.count if self.source is None else self.source()
        metric.add_sample(f"{metric.name}_total", labels, value)


Value = Counter | Histogram | prometheus_client.Gauge


Make = Callable[[Labels], Value]
"""Returns a new value for labels."""


class Series:
    """The values of one metric by its labels: `most` at most, and one for all others."""

    def __init__(self, metric: str, names: Labels, *, make: Make, most: int) -> None:
        """`names` are those of the labels; without labels, the value is there at once."""
        self._metric, self._names, self._make, self._most = metric, names, make, most
        self._values: dict[Labels, Value] = {} if names else {(): make(())}

    def of(self, labels: Labels) -> Value:
        """Return the value with these labels; further ones than the bound are `OTHER`."""
        value = self._values.get(labels)
        if value is not None:
            return value
        assert len(labels) == len(self._names), f"{self._metric} takes {self._names}"
        if len(self._values) >= self._most:
            labels = (OTHER,) * len(labels)
        if labels not in self._values:
            self._values[labels] = self._make(labels)
        return self._values[labels]

    def items(self) -> list[tuple[dict[str, str], Value]]:
        """Return the labels by their names, and the value, of each series."""
        return [
            (dict(zip(self._names, labels, strict=True)), value)
            for labels, value in self._values.items()
        ]


class MeasuredMetrics(Collector):
    """Metrics of one moment."""

    def __init__(self, metrics: list[prometheus_client.Metric]) -> None:
        self._metrics = metrics

    def collect(self) -> list[prometheus_client.Metric]:
        """Return them."""
        return self._metrics
