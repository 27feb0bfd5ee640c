"""Panels of quotas and cards.

Quotas and cards have one series each, from one replica of a cluster. In a handover two replicas may
list them for a moment, so `max by` leaves the instance out.
"""

from typing import Final

from projections.api.usage_families import LINE_FAMILIES
from tools.manifests.dashboard_panels import BAD_FROM_1, PRESSURE, Panel, row, stat

_LINES: Final = '{cluster=~"$cluster",namespace=~"$namespace"}'
_BY_LINE: Final = "max by (cluster, namespace, quota, resource)"
_CARDS: Final = '{cluster=~"$cluster"}'
_BY_CARD: Final = "max by (cluster, node, card)"
_LINE_LEGEND: Final = "{{cluster}}/{{namespace}}/{{quota}} {{resource}}"


def _families(field: str) -> list[str]:
    """Return the metrics of one value of quotas, for every measure."""
    return [family.metric.full_name for family in LINE_FAMILIES if family.field == field]


def _of_lines(name: str) -> str:
    return f"{_BY_LINE} (gpuledger_quota_{name}{_LINES})"


def _of_cards(name: str) -> str:
    return f"{_BY_CARD} (gpuledger_card_{name}{_CARDS})"


_USED_PART: Final = (
    f"{_BY_LINE} ("
    + " or ".join(
        f"{used}{_LINES} / ({limit}{_LINES} > 0)"
        for used, limit in zip(_families("used"), _families("limit"), strict=True)
    )
    + ")"
)
_NO_ROOM: Final = "ExceedsLimit|UniverseExceeded|QuotaExceeded"

QUOTAS: Final = (
    row("Quotas"),
    stat(
        "Fullest quota",
        "Used part of the quota line with the least room. A limit of zero is left out.",
        f"max({_USED_PART})",
        "percentunit",
        bounds=PRESSURE,
        alerts=("LedgerQuotaNearlyFull",),
    ),
    stat(
        "Nearly full lines",
        "Lines of quotas that are used to 90 % or more.",
        f"count({_USED_PART} >= 0.9) or vector(0)",
        bounds=("green", (1, "orange")),
        alerts=("LedgerQuotaNearlyFull",),
    ),
    stat(
        "Waiting pods", "Pods that wait behind the scheduling gate.", "sum(gpuledger_pods_waiting)"
    ),
    stat(
        "Longest wait",
        "Age of the oldest of these pods.",
        "max(gpuledger_pods_waiting_max_seconds)",
        "s",
        alerts=("LedgerPodsWaitLong",),
    ),
    stat(
        "Denials for room in 24 h",
        "Requests that were denied because a quota has no room.",
        f'sum(increase(gpuledger_decisions_total{{reason=~"{_NO_ROOM}"}}[24h])) or vector(0)',
    ),
    stat(
        "Not in these metrics",
        "Lines of quotas and cards beyond the bound of a scrape. They are in no panel.",
        "max(gpuledger_quota_lines_left_out) + max(gpuledger_cards_left_out)",
        bounds=BAD_FROM_1,
        alerts=("LedgerUsageLeftOut",),
    ),
    Panel(
        "Quotas by pressure",
        "The 20 lines of quotas with the least room: used amount over the limit.",
        ((_LINE_LEGEND, f"sort_desc(topk(20, {_USED_PART}))"),),
        "percentunit",
        "bargauge",
        width=12,
        height=12,
        bounds=PRESSURE,
        alerts=("LedgerQuotaNearlyFull",),
    ),
    Panel(
        "Used part over time",
        "The 20 fullest lines of quotas: used amount over the limit.",
        ((_LINE_LEGEND, f"topk(20, {_USED_PART})"),),
        "percentunit",
        width=12,
        height=12,
    ),
    Panel(
        "Memory of quotas",
        "Memory of cards that counts against the 20 largest quotas.",
        ((_LINE_LEGEND, f"topk(20, {_of_lines('memory_used_bytes')})"),),
        "bytes",
    ),
    Panel(
        "Cards of quotas",
        "Cards that count against the 20 largest quotas.",
        ((_LINE_LEGEND, f"topk(20, {_of_lines('cards_used')})"),),
    ),
    Panel(
        "Memory reserved and not committed",
        "Memory that is held for objects that were not observed, and for envelopes of workloads.",
        (
            (
                _LINE_LEGEND,
                f"topk(20, {_of_lines('memory_used_bytes')}"
                f" - {_of_lines('memory_committed_bytes')})",
            ),
        ),
        "bytes",
        alerts=("LedgerHoldsStuck",),
    ),
    row("Cards"),
    stat(
        "All cards",
        "Cards that nodes announce or pods still have.",
        f"count({_of_cards('slots_limit')})",
    ),
    stat(
        "Free cards",
        "Cards without a container.",
        f"count({_of_cards('slots_used')} == 0) or vector(0)",
    ),
    stat(
        "Shared cards",
        "Cards with several containers.",
        f"count({_of_cards('slots_used')} > 1) or vector(0)",
    ),
    stat(
        "Full cards",
        "Cards without memory for another container.",
        f"count({_of_cards('memory_used_bytes')} >= {_of_cards('memory_limit_bytes')})"
        " or vector(0)",
    ),
    stat(
        "Promised memory",
        "Part of the memory of all cards that pods have.",
        f"sum({_of_cards('memory_used_bytes')}) / sum({_of_cards('memory_limit_bytes')})",
        "percentunit",
    ),
    stat(
        "Unhealthy cards",
        "Cards that their node reports as unhealthy. No new pods are placed on them.",
        f"count({_of_cards('healthy')} == 0) or vector(0)",
        bounds=BAD_FROM_1,
        alerts=("NodeCardUnhealthy",),
    ),
    Panel(
        "Memory of cards: promised and used",
        "Memory that pods may get, have, and use according to the driver (from the agents).",
        (
            ("limit", f"sum({_of_cards('memory_limit_bytes')})"),
            ("promised", f"sum({_of_cards('memory_used_bytes')})"),
            ("used", "sum(max by (node, device_uuid) (hami_host_gpu_memory_used_bytes))"),
        ),
        "bytes",
    ),
    Panel(
        "Cores of cards: promised and used",
        "Cores of cards that pods may get, have, and use according to the driver; 1 is a card.",
        (
            ("limit", f"sum({_of_cards('cores_limit_ratio')})"),
            ("promised", f"sum({_of_cards('cores_used_ratio')})"),
            ("used", "sum(max by (node, device_uuid) (hami_host_gpu_utilization_ratio)) / 100"),
        ),
    ),
    Panel(
        "Nodes by promised memory",
        "Part of the memory of a node's cards that pods have: the 20 fullest nodes.",
        (
            (
                "{{cluster}}/{{node}}",
                f"sort_desc(topk(20, sum by (cluster, node) ({_of_cards('memory_used_bytes')})"
                f" / sum by (cluster, node) ({_of_cards('memory_limit_bytes')})))",
            ),
        ),
        "percentunit",
        "bargauge",
        bounds=PRESSURE,
    ),
)
