"""Usage families: the names, units and meanings of the metrics that come from the projection.

One family has one unit. The lines of quotas are in the families of their measure. With the earlier
names, which mix units, each family is also there as it was before.
"""

from typing import Final, NamedTuple

from ledger.core.model.cards import WHOLE
from ledger.kube.quotas.line_measures import QuotaMeasure
from ledger.kube.requests.quantities import MEBIBYTE
from ledger.runtime.metric_table import Metric, MetricKind

LINE_LABELS: Final = ("cluster", "namespace", "quota", "resource")
CARD_LABELS: Final = ("cluster", "node", "card")

_UNITS: Final = {
    QuotaMeasure.MEMORY: ("memory", "_bytes", "memory, bytes"),
    QuotaMeasure.CARDS: ("cards", "", "cards"),
    QuotaMeasure.CORES: ("cores", "_ratio", "cores of cards; 1 is all cores of one card"),
    QuotaMeasure.CPU: ("cpu", "_cores", "CPU, cores"),
    QuotaMeasure.UNITS: ("units", "", "other resources, in the unit of each"),
}
_VALUES: Final = {
    "limit": "Limit of quotas",
    "used": "Amount that counts against quotas",
    "committed": "Part of the used amount that stored objects explain",
}


class LineFamily(NamedTuple):
    """The family of one value of the lines with one measure; `field` is that of `Usage`."""

    metric: Metric
    measure: QuotaMeasure
    field: str


class CardFamily(NamedTuple):
    """The family of one value of cards: the field of `CardUsage`, times `factor`, by `divisor`.

    `formerly` is its earlier name, with the field's own unit.
    """

    metric: Metric
    field: str
    factor: int = 1
    divisor: int = 1
    formerly: str = ""


def _line_family(measure: QuotaMeasure, field: str) -> LineFamily:
    name, suffix, text = _UNITS[measure]
    help_text = f"{_VALUES[field]}: {text}."
    metric = Metric(f"quota_{name}_{field}{suffix}", MetricKind.GAUGE, help_text, LINE_LABELS)
    return LineFamily(metric, measure, field)


def _card(name: str, help_text: str) -> Metric:
    return Metric(f"card_{name}", MetricKind.GAUGE, help_text, CARD_LABELS)


def _gauge(name: str, help_text: str) -> Metric:
    return Metric(name, MetricKind.GAUGE, help_text)


LINE_FAMILIES: Final = tuple(
    _line_family(measure, field) for measure in QuotaMeasure for field in _VALUES
)

EARLIER_LINES: Final = {f"quota_{field}": field for field in _VALUES}
"""The earlier families of lines, each with all resources, and the field of `Usage` of each."""

CARD_FAMILIES: Final = (
    CardFamily(
        _card("memory_limit_bytes", "Memory of a card that pods may get, bytes."),
        "memory",
        factor=MEBIBYTE,
        formerly="card_memory_limit_mib",
    ),
    CardFamily(
        _card("memory_used_bytes", "Memory of a card that pods have, bytes."),
        "used_memory",
        factor=MEBIBYTE,
        formerly="card_memory_used_mib",
    ),
    CardFamily(
        _card("cores_limit_ratio", "Cores of a card that pods may get; 1 is all of its cores."),
        "cores",
        divisor=WHOLE,
        formerly="card_cores_limit",
    ),
    CardFamily(
        _card("cores_used_ratio", "Cores of a card that pods have; 1 is all of its cores."),
        "used_cores",
        divisor=WHOLE,
        formerly="card_cores_used",
    ),
    CardFamily(_card("slots_limit", "Most containers of a card."), "slots"),
    CardFamily(_card("slots_used", "Containers of a card."), "used_slots"),
    CardFamily(_card("healthy", "1 while the node reports the card as healthy."), "health"),
)

LINES_LEFT_OUT: Final = _gauge(
    "quota_lines_left_out", "Lines of quotas that are not listed, because there are too many."
)
CARDS_LEFT_OUT: Final = _gauge(
    "cards_left_out", "Cards that are not listed, because there are too many."
)
POSITION: Final = _gauge("projection_position", "Position of the last record in the projection.")
RECORD_TIME: Final = _gauge(
    "projection_record_timestamp_seconds",
    "Time of the last record in the projection, Unix time.",
)

USAGE_METRICS: Final = (
    *(family.metric for family in LINE_FAMILIES),
    LINES_LEFT_OUT,
    *(family.metric for family in CARD_FAMILIES),
    CARDS_LEFT_OUT,
    POSITION,
    RECORD_TIME,
)
"""The metrics of quotas, cards and the projection."""
