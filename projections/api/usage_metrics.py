"""Metrics of usage and progress, read from the projection at each scrape.

Labels are bounded: lines beyond `LINES_MAX` and cards beyond `CARDS_MAX` are counted and not
listed. No label names a pod.
"""

from collections.abc import Iterator
from typing import Final

from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from ledger.core.model.accounts import AccountKind
from projections.queries.card_usage import CardUsage, cards, cards_open
from projections.queries.query_scope import EVERYTHING
from projections.queries.quota_usage import Usage, usage
from projections.store.readers import Readers
from projections.store.store_writer import ProjectionHead

LINES_MAX: Final = 5_000
"""Most lines that are listed."""
CARDS_MAX: Final = 5_000
"""Most cards that are listed."""

_LABELS: Final = ("cluster", "namespace", "quota", "resource")
_VALUES: Final = {
    "limit": "Limit of a quota line, in the unit of its resource.",
    "used": "Amount charged to a quota line, in the unit of its resource.",
    "committed": "Part of used that stored objects explain.",
}
_CARD_LABELS: Final = ("cluster", "node", "card")
_CARD_VALUES: Final = {
    "memory_limit_mib": ("memory", "Memory of a card that pods may get, MiB."),
    "memory_used_mib": ("used_memory", "Memory of a card that pods have, MiB."),
    "cores_limit": ("cores", "Cores of a card that pods may get, percent of a card."),
    "cores_used": ("used_cores", "Cores of a card that pods have, percent of a card."),
    "slots_limit": ("slots", "Most containers of a card."),
    "slots_used": ("used_slots", "Containers of a card."),
    "healthy": ("health", "1 while the node reports the card as healthy."),
}


class UsageCollector(Collector):
    """Gauges of every quota line and card. Await `refresh` before each scrape."""

    def __init__(self, readers: Readers) -> None:
        self._readers = readers
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
        async with self._readers.view() as view:
            lines, _ = await usage(view, view.head.position, EVERYTHING, limit=LINES_MAX)
            async with view.connection.execute(_LINES_OPEN) as rows:
                row = await rows.fetchone()
            self._cards, _ = await cards(view, view.head.position, limit=CARDS_MAX)
            self._cards_left_out = await cards_open(view) - len(self._cards)
            self._head = view.head
        self._lines = lines[:LINES_MAX]
        self._left_out = (row[0] if row is not None else 0) - len(self._lines)

    def collect(self) -> Iterator[Metric]:
        """Yield the numbers of the last refresh."""
        for name, help_text in _VALUES.items():
            family = GaugeMetricFamily(f"gpuledger_quota_{name}", help_text, labels=_LABELS)
            for line in self._lines:
                labels = (line.cluster, line.namespace, line.quota, line.resource)
                family.add_metric(labels, getattr(line, name))
            yield family
        yield GaugeMetricFamily(
            "gpuledger_quota_lines_left_out",
            "Quota lines that are not listed, because there are too many.",
            value=self._left_out,
        )
        yield from self._of_cards()
        yield GaugeMetricFamily(
            "gpuledger_projection_position",
            "Position of the last record in the projection.",
            value=self._head.position,
        )
        yield GaugeMetricFamily(
            "gpuledger_projection_record_timestamp_seconds",
            "Time of the last record in the projection.",
            value=self._head.time / 1_000_000,
        )

    def _of_cards(self) -> Iterator[Metric]:
        for name, (field, help_text) in _CARD_VALUES.items():
            family = GaugeMetricFamily(f"gpuledger_card_{name}", help_text, labels=_CARD_LABELS)
            for card in self._cards:
                family.add_metric((card.cluster, card.node, card.uuid), getattr(card, field))
            yield family
        yield GaugeMetricFamily(
            "gpuledger_cards_left_out",
            "Cards that are not listed, because there are too many.",
            value=self._cards_left_out,
        )


_LINES_OPEN: Final = f"""
    SELECT count(*) FROM lines JOIN accounts ON accounts.number = lines.account
    WHERE closed IS NULL AND name NOT GLOB '{AccountKind.CARD}/*'
"""
