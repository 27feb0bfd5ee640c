"""Metrics: the registry of one process, and its exposition.

Each metric of `METRICS` has a bound of label combinations. Usage per quota is not here: the read
side collects it from its projection.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

import prometheus_client
from prometheus_client import CollectorRegistry, Gauge
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector
from starlette.requests import Request
from starlette.responses import Response

from ledger.runtime.metric_table import METRICS, PREFIX, Metric, MetricKind
from ledger.runtime.metric_values import Counter, Histogram, Labels, MeasuredMetrics, Series, Value

SERIES_MAX: Final = 256
"""Label combinations of one metric; further ones count as `other`."""


class Telemetry:
    """The metrics of one process. Unknown names are programming errors (KeyError).

    Counters and histograms are plain numbers, because every request raises several of them. All
    methods are called in one thread.
    """

    def __init__(self, *, legacy: bool = False) -> None:
        """Create every metric of the table; metrics without labels are exposed as 0 at once.

        With `legacy`, renamed metrics are exposed by their earlier names, too.
        """
        self._legacy = legacy
        self._gauges = {
            metric.name: Gauge(metric.full_name, metric.help, metric.labels, registry=None)
            for metric in METRICS
            if metric.kind is MetricKind.GAUGE
        }
        self._series = {metric.name: self._new_series(metric) for metric in METRICS}
        self._others: list[Collector] = []

    def count(self, name: str, *labels: str, by: int = 1) -> None:
        """Increase a counter."""
        counter = self._series[name].of(labels)
        assert type(counter) is Counter, f"{name} is not a counter"
        counter.count += by

    def set(self, name: str, value: float, *labels: str) -> None:
        """Set a gauge."""
        gauge = self._series[name].of(labels)
        assert isinstance(gauge, Gauge), f"{name} is not a gauge"
        gauge.set(value)

    def observe(self, name: str, value: float, *labels: str) -> None:
        """Count a value into its histogram."""
        histogram = self._series[name].of(labels)
        assert type(histogram) is Histogram, f"{name} is not a histogram"
        histogram.observe(value)

    def read(self, name: str, function: Callable[[], float]) -> None:
        """Read a gauge or a counter from a function at every scrape; the function is cheap and does
        not wait."""
        value = self._series[name].of(())
        if isinstance(value, Gauge):
            value.set_function(function)
        else:
            assert type(value) is Counter, f"{name} is not a gauge or a counter"
            value.source = function

    def register(self, collector: Collector) -> None:
        """Also expose the metrics of another collector, which is called in another thread."""
        self._others.append(collector)

    def endpoint(
        self, refresh: Sequence[Callable[[], Awaitable[None]]] = ()
    ) -> Callable[[Request], Awaitable[Response]]:
        """Return the endpoint for `/metrics`; `refresh` is awaited before every scrape."""

        async def metrics(request: Request) -> Response:
            for update in refresh:
                await update()
            # In OpenMetrics, extender_reloads_total and its earlier name would be one family.
            accepted = "" if self._legacy else request.headers.get("accept", "")
            encode, content_type = choose_encoder(accepted)
            # Rendering thousands of cards takes half a second, which would block the event loop.
            body = await asyncio.to_thread(encode, self._exposed())
            return Response(body, headers={"content-type": content_type})

        return metrics

    def _exposed(self) -> CollectorRegistry:
        """Return the present metrics; other collectors are called during rendering."""
        exposed = CollectorRegistry()
        measured = [self._collected(metric) for metric in METRICS]
        if self._legacy:
            measured += [
                self._by_earlier_name(metric, collected)
                for metric, collected in zip(METRICS, measured, strict=True)
                if metric.formerly
            ]
        exposed.register(MeasuredMetrics(measured))
        for collector in self._others:
            exposed.register(collector)
        return exposed

    def _collected(self, metric: Metric) -> prometheus_client.Metric:
        """Return the samples of one metric."""
        if metric.kind is MetricKind.GAUGE:
            return next(iter(self._gauges[metric.name].collect()))
        name = metric.full_name.removesuffix("_total")
        collected = prometheus_client.Metric(name, metric.help, metric.kind.value)
        for labels, values in self._series[metric.name].items():
            assert not isinstance(values, Gauge), "gauges were collected above"
            values.add_to(collected, labels)
        return collected

    def _by_earlier_name(
        self, metric: Metric, collected: prometheus_client.Metric
    ) -> prometheus_client.Metric:
        """Return the samples of a metric as a gauge with its earlier name."""
        earlier = prometheus_client.Metric(
            PREFIX + metric.formerly, f"Earlier name of {metric.full_name}.", "gauge"
        )
        for sample in collected.samples:
            earlier.add_sample(earlier.name, sample.labels, sample.value)
        return earlier

    def _new_series(self, metric: Metric) -> Series:
        """Return the values of a metric."""

        def new_value(labels: Labels) -> Value:
            if metric.kind is MetricKind.COUNTER:
                return Counter()
            if metric.kind is MetricKind.HISTOGRAM:
                return Histogram(metric.buckets)
            gauge = self._gauges[metric.name]
            return gauge.labels(*labels) if labels else gauge

        return Series(metric.name, metric.labels, make=new_value, most=SERIES_MAX)
