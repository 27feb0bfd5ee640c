"""`gpuledger node`: shows the usage of a node's containers, from its agent."""

from typing import Annotated, Any, Final

import typer

from gpuledger.cli.command_wrapper import command, group
from gpuledger.cli.output import Format, Output
from gpuledger.cli.tables.table_columns import NAMESPACE, Listing, TableColumn, name, number, text
from ledger.runtime.settings.setting_sources import LoadedSettings

app = group(
    "Show one node, from its agent.",
    "gpuledger node top",
)

MEBIBYTE: Final = 1024**2


def _memory(row: Any) -> str:
    limit = str(row.memory_limit // MEBIBYTE) if row.memory_limit else "-"
    return f"{row.memory_used // MEBIBYTE}/{limit}"


def _seen(row: Any) -> str:
    return "-" if row.seen is None else str(row.seen // MEBIBYTE)


_AMOUNTS: Final = (
    TableColumn("MEMORY", _memory, number=True),
    TableColumn("SEEN", _seen, number=True),
    TableColumn("BUSY", lambda row: f"{row.busy:.0f}/{row.cores_limit}", number=True),
)
COLUMNS: Final = Listing(
    name="POD",
    wide=(
        text("NAMESPACE", "namespace"),
        text("POD", "pod"),
        text("CONTAINER", "container"),
        text("CARD", "card"),
        *_AMOUNTS,
        number("PROCESSES", "processes"),
    ),
    view=(
        NAMESPACE,
        name("POD", "pod"),
        name("CONTAINER", "container", 6),
        name("CARD", "card"),
        *_AMOUNTS,
    ),
)


@command(
    app,
    "gpuledger node top",
    "gpuledger node top --agent http://10.0.0.7:9394 --every 1",
    "gpuledger node top -o json",
    takes=(),
)
async def top(
    loaded: LoadedSettings,
    agent: Annotated[
        str, typer.Option("--agent", metavar="URL", help="URL of the node's agent.")
    ] = "http://127.0.0.1:9394",
    every: Annotated[
        float, typer.Option("--every", metavar="SECONDS", min=0.2, help="Interval of the requests.")
    ] = 2.0,
    once: Annotated[bool, typer.Option("--once", help="Show once, and end.")] = False,
    output: Output = Format.TABLE,
) -> None:
    """Show the live usage of a node's containers.

    MEMORY is used/limit in MiB by the container's count, SEEN the pod's memory by the driver's
    count. BUSY is used/limit in percent of the card's time. With -o json, with --once, or into a
    pipe, it shows the usage once.
    """
    from gpuledger.node.node_top import watch

    await watch(agent, every, output, COLUMNS, once=once)
