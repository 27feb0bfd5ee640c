"""`gpuledger usage`: limits and used amounts of quotas, as of any moment."""

from enum import StrEnum
from typing import Annotated, Any

import typer
from msgspec.structs import replace

from gpuledger.cli.command_wrapper import READING, command
from gpuledger.cli.display_texts import NOTHING
from gpuledger.cli.output import Format, Output, show_rows
from gpuledger.cli.row_options import PLACE, AllNamespaces, Cluster, Namespace
from gpuledger.cli.table_columns import (
    CLUSTER,
    NAMESPACE,
    Listing,
    Omitted,
    TableColumn,
    flag,
    name,
    number,
    quantity,
    resource,
    text,
)
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
    all_namespaces: AllNamespaces = False,
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

    FREE is limit - used. A quota that is INCOMPLETE counts objects of which not all labels were
    read yet. With -o wide, used = reserved + committed: reserved is held for objects that are
    admitted and not yet seen in the cluster. Its amounts are in the unit of the resource: cards,
    MiB, percent of a card.

    With --by, shows who uses quotas over many namespaces: what each cluster or namespace takes.
    """
    from gpuledger.reading.query_source import ledger_queries

    async with ledger_queries(loaded) as queries:
        scope = queries.scope(
            "" if all_namespaces else namespace, cluster, everywhere=all_namespaces
        )
        if by is not None:
            shares = await queries.shares(scope, by.value, at=at, quota=quota)
            shares.announce()
            show_rows(shares.rows, _SHARES, output, "No use of quotas over many namespaces found.")
            return
        lines = await queries.usage(scope, at=at, quota=quota)
    lines.announce()
    show_rows(lines.rows, _USAGE, output, "No quotas found.", namespace=scope.namespace)


def _unread(row: Any) -> str:
    return "yes" if row.incomplete else NOTHING


_USAGE = Listing(
    name="QUOTA",
    wide=(
        *PLACE,
        text("QUOTA", "quota"),
        text("RESOURCE", "resource"),
        number("LIMIT", "limit"),
        number("RESERVED", "reserved"),
        number("COMMITTED", "committed"),
        number("USED", "used"),
        number("FREE", "free"),
        flag("INCOMPLETE", "incomplete"),
    ),
    view=(
        CLUSTER,
        NAMESPACE,
        name("QUOTA", "quota"),
        resource("RESOURCE", "resource"),
        quantity("USED", "used"),
        quantity("LIMIT", "limit"),
        quantity("FREE", "free"),
        TableColumn("INCOMPLETE", _unread, omitted=Omitted.EMPTY),
    ),
)
_SHARES = Listing(
    wide=(
        text("QUOTA", "quota"),
        *PLACE,
        text("RESOURCE", "resource"),
        number("RESERVED", "reserved"),
        number("COMMITTED", "committed"),
        number("USED", "used"),
    ),
    view=(
        name("QUOTA", "quota"),
        name("CLUSTER", "cluster"),
        replace(NAMESPACE, omitted=Omitted.EMPTY),
        resource("RESOURCE", "resource"),
        quantity("RESERVED", "reserved"),
        quantity("USED", "used"),
    ),
)
