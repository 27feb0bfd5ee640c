"""`gpuledger cards`: the limits and used amounts of every card, and its pods."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any, Final

import msgspec
import typer

from gpuledger.cli.command_wrapper import READING, command
from gpuledger.cli.output import Format, Output, show_rows
from gpuledger.cli.row_options import Cluster
from gpuledger.cli.tables.display_texts import NOTHING
from gpuledger.cli.tables.table_columns import (
    CLUSTER,
    KEY,
    KEY_LEAST,
    NAMESPACE,
    Listing,
    Omitted,
    TableColumn,
    age,
    flag,
    name,
    number,
    part,
    text,
)
from gpuledger.cli.time_options import At
from ledger.runtime.settings.setting_sources import LoadedSettings

if TYPE_CHECKING:
    from projections.queries.card_usage import CardUsage
    from projections.queries.pods_on_cards import PodOnCard

UNSCALED: Final = 100
"""The scale, in percent, of a limit that equals the card's own amount."""

_DRA: Final = "dra"
"""The mechanism of cards in ResourceSlices, as in `CardUsage`, whose import takes long."""

_PLACE = (
    text("CLUSTER", "cluster"),
    text("NODE", "node"),
    number("INDEX", "index"),
    text("UUID", "uuid"),
)
_VIEW = (name("NODE", "node", KEY_LEAST), number("INDEX", "index"))


def _health(row: Any) -> str:
    """Return whether the card takes new pods, else the reason why not."""
    if row.state != "announced":
        return str(row.state)
    words = ["ok" if row.health else "unhealthy", *(["cordoned"] if row.cordoned else [])]
    return ",".join(words)


def _scaled(row: Any) -> str:
    """Return the scaled limits, in percent of the card's own amounts."""
    scales = (("memory", row.memory_scale), ("cores", row.cores_scale))
    return ",".join(f"{name}={scale}%" for name, scale in scales if scale != UNSCALED) or "-"


def _mechanism(row: Any) -> str:
    """Return the mechanism that gives the card to further pods, if it is known."""
    return NOTHING if row.offered_by is msgspec.UNSET else row.offered_by or NOTHING


def _driver(row: Any) -> str:
    """Return the driver of the card's ResourceSlice."""
    return NOTHING if row.driver is msgspec.UNSET else row.driver or NOTHING


def _mark(row: Any) -> str:
    """Return the mechanism of a card that only resource claims get."""
    return _DRA if row.offered_by == _DRA else NOTHING


_OWN = (TableColumn("SCALED", _scaled), text("MODE", "mode"), number("NUMA", "numa"))
_GIVEN = (
    text("KEEPER", "keeper"),
    TableColumn("OFFERED", _mechanism),
    TableColumn("DRIVER", _driver),
)
_CARDS = Listing(
    name="NODE",
    wide=(
        *_PLACE,
        text("TYPE", "type"),
        TableColumn("HEALTH", _health),
        part("MEMORY", "used_memory", "memory"),
        part("CORES", "used_cores", "cores"),
        part("SLOTS", "used_slots", "slots"),
        *_OWN,
        *_GIVEN,
    ),
    view=(
        CLUSTER,
        *_VIEW,
        name("TYPE", "type"),
        TableColumn("HEALTH", _health),
        TableColumn("OFFERED", _mark, omitted=Omitted.EMPTY),
        part("MEMORY", "used_memory", "memory", "Mi"),
        part("CORES", "used_cores", "cores", "%"),
        part("SLOTS", "used_slots", "slots"),
    ),
    csv=(
        *_PLACE,
        text("TYPE", "type"),
        TableColumn("HEALTH", _health),
        *(
            number(header.upper().replace("_", " "), header)
            for amount in ("memory", "cores", "slots")
            for header in (f"used_{amount}", amount)
        ),
        *_OWN,
        *_GIVEN,
    ),
)
_PODS = Listing(
    name="NODE",
    wide=(
        *_PLACE,
        text("NAMESPACE", "namespace"),
        text("KEY", "key"),
        number("MEMORY", "memory"),
        number("CORES", "cores"),
        flag("EXCLUSIVE", "exclusive"),
        text("STAGE", "stage"),
        text("SINCE", "since"),
    ),
    view=(
        CLUSTER,
        *_VIEW,
        NAMESPACE,
        KEY,
        TableColumn("MEMORY", lambda row: f"{row.memory}Mi", number=True),
        TableColumn("CORES", lambda row: f"{row.cores}%", number=True),
        age("AGE", "since"),
    ),
)


def register(app: typer.Typer) -> None:
    """Add the command to the app."""
    command(
        app,
        "gpuledger cards",
        "gpuledger cards node-7 --pods",
        "gpuledger cards -o json --at 2026-01-31T12:00:00Z",
        takes=READING,
    )(cards)


async def cards(
    loaded: LoadedSettings,
    node: Annotated[str, typer.Argument(metavar="NODE", help="Only the cards of this node.")] = "",
    cluster: Cluster = "",
    at: At = "",
    pods: Annotated[bool, typer.Option("--pods", help="Show the pods on each card.")] = False,
    output: Output = Format.TABLE,
) -> None:
    """Show the cards of nodes and their usage.

    Columns with two numbers show used/limit: memory in MiB, cores in percent of a card, slots in
    containers. HEALTH is ok, unhealthy or cordoned; lost when the node no longer announces the
    card, gone when the node no longer exists, while pods hold it. With -o wide, SCALED shows limits
    in percent of the card's own amounts, and KEEPER the device plugin that hands the card out.

    OFFERED is dra for a card in a ResourceSlice, which only resource claims get. With -o wide it is
    device-plugin for the cards that other pods get, and DRIVER is the driver of the slice. Both are
    known to a service with a cluster, and not in a store.

    With --pods, one line per pod on a card; an empty card has one line. With -o name, the nodes.
    """
    from gpuledger.reading.query_source import ledger_queries

    async with ledger_queries(loaded) as queries:
        answer = await queries.cards(cluster=cluster, node=node, at=at, pods=pods)
    answer.announce()
    usages = sorted(answer.rows, key=lambda card: (card.cluster, card.node, card.index, card.uuid))
    nothing = f"No cards of node {node} found." if node else "No cards found."
    if pods and not output.is_object:
        show_rows(_pod_rows(usages), _PODS, output, nothing)
    else:
        show_rows(usages, _CARDS, output, nothing)


class CardRow(msgspec.Struct, frozen=True):
    """A pod on a card, as one line of a table; an empty card has a line without a pod."""

    cluster: str
    node: str
    index: int
    uuid: str
    namespace: str = ""
    key: str = ""
    memory: int = 0
    cores: int = 0
    exclusive: bool = False
    stage: str = ""
    since: str = ""


def _pod_rows(usages: "list[CardUsage]") -> list[CardRow]:
    """Return a line for every pod on a card, and one for every empty card."""
    return [line for card in usages for line in _rows_of_card(card)]


def _rows_of_card(card: "CardUsage") -> Iterator[CardRow]:
    where = (card.cluster, card.node, card.index, card.uuid)
    pods: list[PodOnCard] = [] if card.pods is msgspec.UNSET else card.pods
    if not pods:
        yield CardRow(*where)
    for pod in pods:
        amounts = (pod.memory, pod.cores, pod.exclusive)
        yield CardRow(*where, pod.namespace, pod.key, *amounts, pod.stage, pod.since)
