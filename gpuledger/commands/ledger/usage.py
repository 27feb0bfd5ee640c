"""`gpuledger usage`: limits and used amounts of quotas, as of any moment."""

from enum import StrEnum
from typing import Annotated

import typer

from gpuledger.cli.command_wrapper import READING, command
from gpuledger.cli.output import Format, Output, flag, number, show_rows, text
from gpuledger.cli.row_options import PLACE, Cluster, Namespace
from gpuledger.cli.time_options import At
from ledger.runtime.settings.setting_sources import LoadedSettings


class BreakdownOption(StrEnum):
    """The values of `projections.queries.universe_shares.UsageBreakdown`, without its import."""

    CLUSTER = "cluster"
    NAMESPACE = "namespace"


def register(app: typer.Typer) -> None:
    """Add the commands to the app."""
    command(
        app,
        "gpuledger usage",
        "gpuledger usage -n team-a -o json",
        "gpuledger usage --at 2026-01-31T12:00:00Z",
        "gpuledger usage --quota company --by cluster",
        takes=READING,
    )(usage)


async def usage(
    loaded: LoadedSettings,
    namespace: Namespace = "",
    cluster: Cluster = "",
    at: At = "",
    quota: Annotated[
        str, typer.Option("--quota", metavar="QUOTA", help="Only quotas of this name.")
    ] = "",
    by: Annotated[
        BreakdownOption | None,
        typer.Option("--by", metavar="cluster|namespace", help="Show the share of each of these."),
    ] = None,
    output: Output = Format.TABLE,
) -> None:
    """Show limit and use of every quota.

    used = reserved + committed: reserved is held for objects that are admitted and not yet seen
    in the cluster. free = limit - used. Amounts are in the unit of the resource: cards, MiB,
    percent of a card. A quota that is INCOMPLETE counts objects of which not all labels were read
    yet.

    With --by, shows who uses quotas over many namespaces: what each cluster or namespace takes.
    """
    from gpuledger.reading.query_source import ledger_queries

    async with ledger_queries(loaded) as queries:
        scope = queries.scope(namespace, cluster)
        if by is not None:
            shares = await queries.shares(scope, by.value, at=at, quota=quota)
            shares.announce()
            show_rows(shares.rows, _SHARES, output, "No use of quotas over many namespaces found.")
            return
        lines = await queries.usage(scope, at=at, quota=quota)
    lines.announce()
    columns = _USAGE_UNREAD if any(row.incomplete for row in lines.rows) else _USAGE
    show_rows(lines.rows, columns, output, "No quotas found.")


_USAGE = (
    *PLACE,
    text("QUOTA", "quota"),
    text("RESOURCE", "resource"),
    number("LIMIT", "limit"),
    number("RESERVED", "reserved"),
    number("COMMITTED", "committed"),
    number("USED", "used"),
    number("FREE", "free"),
)
_USAGE_UNREAD = (*_USAGE, flag("INCOMPLETE", "incomplete"))
_SHARES = (
    text("QUOTA", "quota"),
    *PLACE,
    text("RESOURCE", "resource"),
    number("RESERVED", "reserved"),
    number("COMMITTED", "committed"),
    number("USED", "used"),
)
