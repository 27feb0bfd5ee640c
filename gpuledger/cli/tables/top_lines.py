"""Top lines: the state of `gpuledger top` as one table, for scripts and spreadsheets.

A quota's limit is one line, and a card has one for its memory, its cores and its slots. Quotas come
first, then cards, each with the fullest first.
"""

from collections.abc import Iterator
from typing import Final

import msgspec

from gpuledger.cli.tables.table_columns import Listing, TableColumn, number, text
from gpuledger.cli.tables.top_screen import TopState, pressure

_OF_CARDS: Final = ("memory", "cores", "slots")
"""Resources of a card: MiB, percent of a card, containers."""


class TopLine(msgspec.Struct, frozen=True):
    """A limit with its use, in the unit of the resource. `name` is that of a quota, or a UUID."""

    kind: str
    cluster: str
    namespace: str
    node: str
    name: str
    resource: str
    used: int
    limit: int


def top_lines(state: TopState) -> Iterator[TopLine]:
    """Yield the lines of a state."""
    for row in state.quotas:
        place = (row.cluster, row.namespace, "", row.quota)
        yield TopLine("quota", *place, row.resource, row.used, row.limit)
    for card in state.cards:
        for resource in _OF_CARDS:
            used, limit = getattr(card, f"used_{resource}"), getattr(card, resource)
            yield TopLine("card", card.cluster, "", card.node, card.uuid, resource, used, limit)


LINES: Final = Listing(
    name="NAME",
    wide=(
        text("KIND", "kind"),
        text("CLUSTER", "cluster"),
        text("NAMESPACE", "namespace"),
        text("NODE", "node"),
        text("NAME", "name"),
        text("RESOURCE", "resource"),
        number("USED", "used"),
        number("LIMIT", "limit"),
        TableColumn("PRESSURE", lambda row: f"{pressure(row.used, row.limit):.3f}", number=True),
    ),
)
