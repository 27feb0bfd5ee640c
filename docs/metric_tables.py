"""The page about the metrics of the service, from the tables of its code."""

from collections.abc import Iterable, Iterator

from ledger.runtime.metric_table import METRICS, PREFIX, Metric
from projections.api.usage_families import (
    CARD_FAMILIES,
    EARLIER_LINES,
    LINE_FAMILIES,
    USAGE_METRICS,
)
from projections.api.usage_metrics import CARDS_MAX, LINES_MAX, QUOTAS_OF_NAMESPACE_MAX


def page(note: str) -> str:
    """Return the page about the metrics of the service; `note` names its origin."""
    lines = [
        "# Metrics",
        "",
        f"{note}",
        "Served at `/metrics` for Prometheus, [to permitted"
        " accounts](../how-to/operating.md#scraping). A metric has one base unit: bytes, seconds,"
        " or a ratio, of which 1 is all of a card. Labels come from closed sets, except for the"
        " names of quotas, nodes and cards. [The metrics of"
        " agents](../how-to/node.md#usage-of-containers) are listed there.",
        "",
        *_metric_rows(METRICS),
        "",
        "## Quotas and cards",
        "",
        "These come from the projection. Only the replica that settles its cluster"
        " (`gpuledger_settler` is 1) lists quotas and cards, so a sum over all replicas is right."
        " It lists those of its own cluster, and the quotas over many namespaces if the cluster is"
        " the [authority](settings.md). After the end of that replica another one lists them"
        " within five seconds; a scrape in between finds none.",
        "",
        f"A scrape lists at most {QUOTAS_OF_NAMESPACE_MAX} quotas of a namespace, {LINES_MAX:,}"
        f" lines of quotas and {CARDS_MAX:,} cards. Two metrics count the others.",
        "",
        *_metric_rows(USAGE_METRICS),
        "",
        "## Earlier names",
        "",
        "With [`legacy_metrics`](settings.md) these names are there as well, for one version. A"
        " quota family then has lines of all units, as it had.",
        "",
        "| earlier name | name |",
        "|---|---|",
        *(f"| `{earlier}` | {now} |" for earlier, now in _earlier_names()),
    ]
    return "\n".join([*lines, ""])


def _metric_rows(metrics: Iterable[Metric]) -> list[str]:
    rows = ["| metric | kind | labels | meaning |", "|---|---|---|---|"]
    for metric in metrics:
        labels = ", ".join(f"`{label}`" for label in metric.labels) or "none"
        rows.append(f"| `{metric.full_name}` | {metric.kind.value} | {labels} | {metric.help} |")
    return rows


def _earlier_names() -> Iterator[tuple[str, str]]:
    """Yield the earlier name of each renamed metric, and its names now."""
    for metric in METRICS:
        if metric.formerly:
            yield PREFIX + metric.formerly, f"`{metric.full_name}`"
    for earlier, field in EARLIER_LINES.items():
        names = (family.metric.full_name for family in LINE_FAMILIES if family.field == field)
        yield PREFIX + earlier, ", ".join(f"`{name}`" for name in names)
    for family in CARD_FAMILIES:
        if family.formerly:
            yield PREFIX + family.formerly, f"`{family.metric.full_name}`"
    yield from (
        (f"{PREFIX}card_healthy", f"`{PREFIX}device_healthy`, of agents; the service has both"),
        (f"{PREFIX}container_cores_limit", f"`{PREFIX}container_cores_limit_ratio`, of agents"),
    )
