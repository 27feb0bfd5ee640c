"""Metrics of usage and progress, read from the projection at each scrape.

One replica of a cluster lists the cluster's quotas and cards, so that a sum over all replicas is
right. The number of series is bounded: lines beyond `LINES_MAX`, quotas of one namespace beyond
`QUOTAS_OF_NAMESPACE_MAX` and cards beyond `CARDS_MAX` are counted and not listed. No label names a
pod.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final

import msgspec
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.core import Metric as Family
from prometheus_client.registry import Collector

from ledger.kube.quotas.line_measures import OTHER, LineMeasure, QuotaMeasure
from ledger.runtime.metric_table import PREFIX, Metric
from projections.api.usage_families import (
    CARD_FAMILIES,
    CARD_LABELS,
    CARDS_LEFT_OUT,
    EARLIER_LINES,
    LINE_FAMILIES,
    LINE_LABELS,
    LINES_LEFT_OUT,
    POSITION,
    RECORD_TIME,
)
from projections.queries.card_usage import CardUsage, cards, cards_open
from projections.queries.quota_usage import Usage, lines_open, usage_by_cluster
from projections.store.readers import ProjectionView, Readers
from projections.store.store_writer import ProjectionHead

LINES_MAX: Final = 5_000
"""Most lines that are listed."""
QUOTAS_OF_NAMESPACE_MAX: Final = 32
"""Most quotas of one namespace that are listed, so that its users displace no other namespace."""
CARDS_MAX: Final = 5_000
"""Most cards that are listed."""


def exported_always() -> bool:
    """Return that this process lists quotas and cards: it is the only one."""
    return True


class UsageExport(msgspec.Struct, frozen=True, kw_only=True):
    """The quotas and cards that a replica lists.

    `measures` has the measure of each quota key. `cluster` is the own cluster, "" for all; with
    `shared`, quotas over many namespaces are listed as well. `is_active` returns whether this
    replica lists anything. `legacy` adds the earlier names.
    """

    measures: Mapping[str, LineMeasure]
    cluster: str = ""
    shared: bool = True
    is_active: Callable[[], bool] = exported_always
    legacy: bool = False


class UsageCollector(Collector):
    """Gauges of every quota line and card. Await `refresh` before each scrape."""

    def __init__(self, readers: Readers, export: UsageExport) -> None:
        self._readers, self._export = readers, export
        self._lines: list[Usage] = []
        self._left_out = 0
        self._cards: list[CardUsage] = []
        self._cards_left_out = 0
        self._head = ProjectionHead(0, 0, b"")

    @property
    def position(self) -> int:
        """Position of the projection at the last refresh."""
        return self._head.position

    async def refresh(self) -> None:
        """Read the projection as it is now. Raises StoreError, and TimeoutError."""
        is_active = self._export.is_active()
        if not is_active:
            self._clear()
        async with self._readers.view() as view:
            if is_active:
                await self._read(view)
            self._head = view.head

    def _clear(self) -> None:
        self._lines, self._left_out, self._cards, self._cards_left_out = [], 0, [], 0

    async def _read(self, view: ProjectionView) -> None:
        cluster, shared = self._export.cluster, self._export.shared
        lines = await usage_by_cluster(
            view, cluster, shared=shared, limit=LINES_MAX, per_namespace=QUOTAS_OF_NAMESPACE_MAX
        )
        self._lines = lines[:LINES_MAX]
        self._left_out = await lines_open(view, cluster, shared=shared) - len(self._lines)
        self._cards, _ = await cards(view, view.head.position, limit=CARDS_MAX, cluster=cluster)
        self._cards_left_out = await cards_open(view, cluster) - len(self._cards)

    def collect(self) -> Iterator[Family]:
        """Yield the numbers of the last refresh."""
        yield from self._of_lines(self._lines)
        yield _single(LINES_LEFT_OUT, self._left_out)
        yield from self._of_cards(self._cards)
        yield _single(CARDS_LEFT_OUT, self._cards_left_out)
        yield _single(POSITION, self._head.position)
        yield _single(RECORD_TIME, self._head.time / 1_000_000)

    def _of_lines(self, lines: list[Usage]) -> Iterator[Family]:
        by_measure: dict[QuotaMeasure, list[tuple[Usage, LineMeasure]]] = {}
        for line in lines:
            measured = self._export.measures.get(line.resource, OTHER)
            by_measure.setdefault(measured.measure, []).append((line, measured))
        for metric, measure, field in LINE_FAMILIES:
            family = _family(metric)
            for line, (_, factor, divisor) in by_measure.get(measure, ()):
                family.add_metric(_labels(line), getattr(line, field) * factor / divisor)
            yield family
        if self._export.legacy:
            for name, field in EARLIER_LINES.items():
                yield _earlier(
                    name, LINE_LABELS, [(_labels(at), getattr(at, field)) for at in lines]
                )

    def _of_cards(self, listed: list[CardUsage]) -> Iterator[Family]:
        labels = [(card.cluster, card.node, card.uuid) for card in listed]
        for metric, field, factor, divisor, formerly in CARD_FAMILIES:
            values = [getattr(card, field) for card in listed]
            family = _family(metric)
            for own, value in zip(labels, values, strict=True):
                family.add_metric(own, value * factor / divisor)
            yield family
            if formerly and self._export.legacy:
                yield _earlier(formerly, CARD_LABELS, zip(labels, values, strict=True))


def _labels(line: Usage) -> tuple[str, ...]:
    return (line.cluster, line.namespace, line.quota, line.resource)


def _earlier(
    name: str, names: tuple[str, ...], samples: Iterable[tuple[tuple[str, ...], float]]
) -> Family:
    """Return a family of the earlier names, in the units of the ledger."""
    family = GaugeMetricFamily(PREFIX + name, "Earlier name, by legacy_metrics.", labels=names)
    for labels, value in samples:
        family.add_metric(labels, value)
    return family


def _family(metric: Metric) -> GaugeMetricFamily:
    return GaugeMetricFamily(metric.full_name, metric.help, labels=metric.labels)


def _single(metric: Metric, value: float) -> GaugeMetricFamily:
    return GaugeMetricFamily(metric.full_name, metric.help, value=value)
