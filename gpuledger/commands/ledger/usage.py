"""`gpuledger usage` and `gpuledger top`: limits and used amounts, as of any moment, and live."""

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer
from msgspec.structs import replace

from gpuledger.cli.command_wrapper import READING, command
from gpuledger.cli.output import (
    Format,
    Output,
    announce,
    show_object,
    show_rows,
    write_line,
)
from gpuledger.cli.prose import note
from gpuledger.cli.row_options import PLACE, AllNamespaces, Cluster, Namespace
from gpuledger.cli.tables.display_texts import NOTHING
from gpuledger.cli.tables.table_columns import (
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

if TYPE_CHECKING:
    from gpuledger.cli.tables.top_screen import TopState
    from gpuledger.reading.ledger_queries import LedgerQueries
    from projections.queries.query_scope import QueryScope


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
    command(
        app,
        "gpuledger top",
        "gpuledger top -n team-a --every 5",
        "gpuledger top --once",
        "gpuledger top -o csv",
        takes=READING,
    )(top)


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
        scope = queries.scope(namespace, cluster, everywhere=all_namespaces)
        if by is not None:
            shares = await queries.shares(scope, by.value, at=at, quota=quota)
            shares.announce()
            show_rows(shares.rows, _SHARES, output, "No use of quotas over many namespaces found.")
            return
        lines = await queries.usage(scope, at=at, quota=quota)
    lines.announce()
    show_rows(lines.rows, _USAGE, output, "No quotas found.", namespace=scope.namespace)


async def top(
    loaded: LoadedSettings,
    namespace: Namespace = "",
    all_namespaces: AllNamespaces = False,
    cluster: Cluster = "",
    every: Annotated[
        float,
        typer.Option("--every", metavar="SECONDS", min=0.5, max=3_600, help="Refresh interval."),
    ] = 2.0,
    once: Annotated[bool, typer.Option("--once", help="Show once, and end.")] = False,
    output: Output = Format.TABLE,
) -> None:
    """Show quotas and cards live, the fullest first.

    PRESSURE is the used part of a limit, of cards that of their memory. The key q or Ctrl-C ends
    it. With --once, with any -o but table, or into a pipe, it shows the state once. A user without
    the right to list cards gets quotas only.

    -o wide and csv have one table: a line for each limit of a quota, and three for each card, in
    MiB, percent of a card and containers. PRESSURE is a fraction there, 1.000 for a full limit.
    """
    from gpuledger.cli.tables.live_screen import live, shows_live
    from gpuledger.reading.query_source import ledger_queries

    async with ledger_queries(loaded) as queries:
        scope = queries.scope(namespace, cluster, everywhere=all_namespaces)
        if output is Format.TABLE and not once and shows_live():
            await live(lambda: _state(queries, scope), every)
            return
        state = await _state(queries, scope)
    if output.is_object:
        show_object(state, output)
    elif output is Format.TABLE:
        _print(state)
    else:
        _print_lines(state, output)


async def _state(queries: "LedgerQueries", scope: "QueryScope") -> "TopState":
    """Return the present state. Raises CommandError if quotas cannot be read."""
    from gpuledger.cli.exit_codes import CommandError
    from gpuledger.cli.tables.top_screen import state_of

    usage = await queries.usage(scope)
    try:
        cards = (await queries.cards(cluster=scope.cluster)).rows
    except CommandError as error:
        return state_of(usage.position, usage.head, usage.rows, (), f"Cards: {error}")
    return state_of(usage.position, usage.head, usage.rows, cards)


def _print(state: "TopState") -> None:
    from gpuledger.cli.tables.top_screen import CARDS, QUOTAS

    announce(state.position, state.head)
    show_rows(state.quotas, QUOTAS, Format.TABLE, "No quotas found.")
    if state.cards:
        write_line()
    show_rows(state.cards, CARDS, Format.TABLE, state.note or "No cards found.")


def _print_lines(state: "TopState", output: Format) -> None:
    from gpuledger.cli.tables.top_lines import LINES, top_lines

    announce(state.position, state.head)
    show_rows(list(top_lines(state)), LINES, output, "No quotas and no cards found.")
    if state.note:
        note(state.note)


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
