"""`gpuledger cards`: the limits and used amounts of every card, and its pods."""

from typing import Annotated, Any, Final

import typer

from gpuledger.cli.command_wrapper import command
from gpuledger.cli.output import Format, Output, TableColumn, flag, number, show_rows, text
from gpuledger.cli.time_options import At
from gpuledger.commands.ledger.usage import Cluster
from ledger.runtime.settings.setting_sources import LoadedSettings

UNSCALED: Final = 100
"""The scale, in percent, of a limit that equals the card's own amount."""

_PLACE = (
    text("CLUSTER", "cluster"),
    text("NODE", "node"),
    number("INDEX", "index"),
    text("UUID", "uuid"),
)


def _of(used: str, limit: str) -> TableColumn:
    """Return a column with used amount and limit."""
    return TableColumn(
        used.removeprefix("used_").upper(),
        lambda row: f"{getattr(row, used)}/{getattr(row, limit)}",
        number=True,
    )


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


_CARDS = (
    *_PLACE,
    text("TYPE", "type"),
    TableColumn("HEALTH", _health),
    _of("used_memory", "memory"),
    _of("used_cores", "cores"),
    _of("used_slots", "slots"),
    TableColumn("SCALED", _scaled),
    text("MODE", "mode"),
    number("NUMA", "numa"),
    text("KEEPER", "keeper"),
)
_PODS = (
    *_PLACE,
    text("NAMESPACE", "namespace"),
    text("KEY", "key"),
    number("MEMORY", "memory"),
    number("CORES", "cores"),
    flag("EXCLUSIVE", "exclusive"),
    text("STAGE", "stage"),
    text("SINCE", "since"),
)


def register(app: typer.Typer) -> None:
    """Add the command to the app."""
    command(
        app,
        "gpuledger cards",
        "gpuledger cards node-7 --pods",
        "gpuledger cards -o json --at 2026-01-31T12:00:00Z",
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
    containers. SCALED shows limits in percent of the card's own amounts. HEALTH is ok, unhealthy
    or cordoned; lost when the node no longer announces the card, gone when the node no longer
    exists, while pods hold it. KEEPER is the device plugin that hands the card out.

    With --pods, one line per pod on a card; an empty card has one line.
    """
    from gpuledger.queries import card_listing

    found = await card_listing.list_cards(loaded.settings, node, cluster, at, pods=pods)
    nothing = f"No cards of node {node} found." if node else "No cards found."
    if pods and output is Format.TABLE:
        show_rows(card_listing.card_rows(found), _PODS, output, nothing)
    else:
        show_rows(found, _CARDS, output, nothing)
