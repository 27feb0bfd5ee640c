"""Commands that read the projection, as of any moment, with or without a running service."""

from enum import StrEnum
from typing import Annotated, Any

import typer

from gpuledger.cli.command_wrapper import command
from gpuledger.cli.output import Format, Output, TableColumn, amounts, flag, number, show_rows, text
from gpuledger.cli.time_options import At, Since, Until
from ledger.runtime.settings.setting_sources import LoadedSettings

Namespace = Annotated[
    str, typer.Option("--namespace", "-n", metavar="NAMESPACE", help="Only this namespace.")
]
Cluster = Annotated[
    str, typer.Option("--cluster", metavar="CLUSTER", help="Only this cluster of the ledger.")
]


class BreakdownOption(StrEnum):
    """The values of `projections.queries.universe_shares.UsageBreakdown`, without its import."""

    CLUSTER = "cluster"
    NAMESPACE = "namespace"


Limit = Annotated[int, typer.Option("--limit", min=1, max=100_000, help="Most rows to print.")]

_PLACE = (text("CLUSTER", "cluster"), text("NAMESPACE", "namespace"))


def register(app: typer.Typer) -> None:
    """Add the commands to the app."""
    command(
        app,
        "gpuledger usage",
        "gpuledger usage -n team-a -o json",
        "gpuledger usage --at 2026-01-31T12:00:00Z",
        "gpuledger usage --quota company --by cluster",
    )(usage)
    command(
        app,
        "gpuledger holders -n team-a",
        "gpuledger holders -n team-a --root deployments.apps/web",
        "gpuledger holders --at 1200 -o yaml",
    )(holders)
    command(app, "gpuledger holds", "gpuledger holds -n team-a -o json")(holds)
    command(
        app,
        "gpuledger history -n team-a --limit 20",
        "gpuledger history --since 1200 --until 1300 -o json",
    )(history)
    command(app, "gpuledger denials -n team-a", "gpuledger denials --since 2026-01-31 -o json")(
        denials
    )


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
    from gpuledger.queries import usage_report
    from projections.queries.scopes import QueryScope

    asked = (loaded.settings, QueryScope(namespace, cluster), at, quota)
    if by is None:
        rows = await usage_report.usage_lines(*asked)
        columns = _USAGE_UNREAD if any(row.incomplete for row in rows) else _USAGE
        show_rows(rows, columns, output, "No quotas found.")
    else:
        shares = await usage_report.usage_shares(*asked, by.value)
        show_rows(shares, _SHARES, output, "No use of quotas over many namespaces found.")


async def holders(
    loaded: LoadedSettings,
    namespace: Namespace = "",
    cluster: Cluster = "",
    at: At = "",
    pods: Annotated[
        bool, typer.Option("--pods", help="Also pods that are charged with their root.")
    ] = False,
    root: Annotated[
        str,
        typer.Option("--root", metavar="KEY", help="Only the pods of this root, as KEY shows it."),
    ] = "",
    output: Output = Format.TABLE,
) -> None:
    """Show who is charged how much.

    One row per object, or attempt to write one: its charge is the largest of what is committed and
    what its open holds ask for. A root, such as a Deployment, is charged with its pods: the larger
    of its envelope, what its spec may run at once, and of what its pods have drawn together. So
    amounts add up to what is used; with --pods they do not.
    """
    from gpuledger.storage.projection_views import paged, viewing
    from projections.queries.holders import holders as ask
    from projections.queries.scopes import QueryScope

    scope = QueryScope(namespace, cluster)
    async with viewing(loaded.settings, at) as (view, position):
        rows = await paged(
            lambda size, after: ask(
                view, position, scope, limit=size, after=after, pods=pods, root=root
            )
        )
    show_rows(rows, _HOLDERS, output, "No holders found.")


async def holds(
    loaded: LoadedSettings,
    namespace: Namespace = "",
    cluster: Cluster = "",
    at: At = "",
    output: Output = Format.TABLE,
) -> None:
    """Show what is admitted and not settled yet.

    A hold ends when its object is seen persisted, or is proved never to have been written.
    """
    from gpuledger.storage.projection_views import paged, viewing
    from projections.queries.holders import holds as ask
    from projections.queries.scopes import QueryScope

    scope = QueryScope(namespace, cluster)
    async with viewing(loaded.settings, at) as (view, position):
        rows = await paged(lambda size, after: ask(view, position, scope, limit=size, after=after))
    show_rows(rows, _HOLDS, output, "No open holds found.")


async def history(
    loaded: LoadedSettings,
    namespace: Namespace = "",
    cluster: Cluster = "",
    since: Since = "",
    until: Until = "",
    limit: Limit = 1_000,
    output: Output = Format.TABLE,
) -> None:
    """Show what happened, oldest first.

    Quotas over many namespaces are part of the whole history only, not of a namespace's.
    """
    from gpuledger.storage.projection_views import ordered, stretch, viewing
    from projections.queries.event_history import history as ask
    from projections.queries.scopes import QueryScope

    ordered(since, until)
    async with viewing(loaded.settings, "") as (view, _):
        first, last = await stretch(view, since, until)
        rows, more = await ask(view, first, last, QueryScope(namespace, cluster), limit=limit)
    show_rows(rows, _HISTORY, output, "No events found.")
    if more is not None:
        typer.echo(f"There is more: go on with --since {more[0]}, or raise --limit.", err=True)


async def denials(
    loaded: LoadedSettings,
    namespace: Namespace = "",
    cluster: Cluster = "",
    since: Since = "",
    until: Until = "",
    limit: Limit = 100,
    output: Output = Format.TABLE,
) -> None:
    """Show denied requests and their reasons, newest first.

    Denials are stored for some weeks (setting denials_days).
    """
    from gpuledger.storage.projection_views import ordered, times, viewing
    from projections.queries.denial_history import denials as ask
    from projections.queries.scopes import QueryScope

    ordered(since, until)
    async with viewing(loaded.settings, "") as (view, _):
        begin, end = await times(view, since, until)
        scope = QueryScope(namespace, cluster)
        rows, more = await ask(view, scope, limit=limit, since=begin, until=end)
    show_rows(rows, _DENIALS, output, "No denials found.")
    if more:
        typer.echo("Older ones exist: raise --limit.", err=True)


def _reason(row: Any) -> str:
    return str(row.denial.reason)


_USAGE = (
    *_PLACE,
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
    *_PLACE,
    text("RESOURCE", "resource"),
    number("RESERVED", "reserved"),
    number("COMMITTED", "committed"),
    number("USED", "used"),
)
_HOLDERS = (
    *_PLACE,
    text("KEY", "key"),
    amounts("AMOUNTS", "amounts"),
    amounts("COMMITTED", "committed"),
    number("HOLDS", "holds"),
    number("PODS", "pods"),
    text("ROOT", "root"),
    text("SINCE", "since"),
)
_HOLDS = (
    *_PLACE,
    text("KEY", "key"),
    text("UID", "uid"),
    number("BASE", "base"),
    amounts("AMOUNTS", "amounts"),
    text("ROOT", "root"),
    text("SINCE", "since"),
    text("ACTOR", "actor"),
)
_HISTORY = (
    number("POSITION", "position"),
    text("TIME", "time"),
    text("TYPE", "type"),
    text("CAUSE", "cause"),
    *_PLACE,
    text("KEY", "key"),
    amounts("AMOUNTS", "amounts"),
    text("ACTOR", "actor"),
    text("NOTE", "note"),
)
_DENIALS = (
    text("TIME", "time"),
    *_PLACE,
    text("KEY", "key"),
    TableColumn("REASON", _reason),
    text("MESSAGE", "message"),
)
