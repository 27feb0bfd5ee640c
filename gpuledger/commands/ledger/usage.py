"""`gpuledger usage`: limits and used amounts of quotas, as of any moment."""

from enum import StrEnum
from typing import Annotated

import typer

from gpuledger.cli.command_wrapper import command
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
    from gpuledger.storage.projection_views import paged, viewing
    from projections.queries.query_scope import QueryScope
    from projections.queries.quota_usage import usage as ask
    from projections.queries.universe_shares import UsageBreakdown
    from projections.queries.universe_shares import shares as ask_shares

    scope = QueryScope(namespace, cluster)
    if by is None:
        async with viewing(loaded.settings, at) as (view, position):
            rows = await paged(
                lambda size, after: ask(view, position, scope, limit=size, quota=quota, after=after)
            )
        columns = _USAGE_UNREAD if any(row.incomplete for row in rows) else _USAGE
        show_rows(rows, columns, output, "No quotas found.")
    else:
        breakdown = UsageBreakdown(by.value)
        async with viewing(loaded.settings, at) as (view, position):
            shares = await paged(
                lambda size, after: ask_shares(
                    view, position, scope, breakdown, limit=size, quota=quota, after=after
                )
            )
        show_rows(shares, _SHARES, output, "No use of quotas over many namespaces found.")


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
