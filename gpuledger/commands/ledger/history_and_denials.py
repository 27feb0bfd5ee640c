"""`gpuledger history` and `gpuledger denials`: recorded events, and refused requests."""

from collections.abc import Sequence
from typing import Any

import typer

from gpuledger.cli.command_wrapper import READING, command
from gpuledger.cli.output import Format, Output, show_rows
from gpuledger.cli.prose import note
from gpuledger.cli.row_options import PLACE, AllNamespaces, Cluster, Limit, Namespace
from gpuledger.cli.tables.display_texts import NOTHING, amounts_text
from gpuledger.cli.tables.table_columns import (
    CLUSTER,
    KEY,
    NAMESPACE,
    POSITION,
    Listing,
    TableColumn,
    age,
    amounts,
    sentence,
    text,
)
from gpuledger.cli.time_options import Since, Until
from ledger.runtime.settings.setting_sources import LoadedSettings


def register(app: typer.Typer) -> None:
    """Add the commands to the app."""
    command(
        app,
        "gpuledger history -n team-a --limit 20",
        "gpuledger history --since 1200 --until 1300 -o json",
        takes=READING,
    )(history)
    command(
        app,
        "gpuledger denials -n team-a",
        "gpuledger denials --since 2026-01-31 -o json",
        takes=READING,
    )(denials)


async def history(
    loaded: LoadedSettings,
    namespace: Namespace = "",
    all_namespaces: AllNamespaces = False,
    cluster: Cluster = "",
    since: Since = "",
    until: Until = "",
    limit: Limit = 1_000,
    output: Output = Format.TABLE,
) -> None:
    """Show what happened, oldest first.

    DETAIL is the amounts of an event, or its note without amounts; -o wide has both. Quotas over
    many namespaces are part of the whole history only, not of a namespace's.
    """
    from gpuledger.reading.query_source import ledger_queries

    async with ledger_queries(loaded) as queries:
        scope = queries.scope(namespace, cluster, everywhere=all_namespaces)
        answer = await queries.events(scope, since=since, until=until, limit=limit)
    answer.announce()
    show_rows(answer.rows, _HISTORY, output, "No events found.", namespace=scope.namespace)
    if answer.more:
        note(_more(answer.more, answer.rows))


def _more(position: int, rows: Sequence[Any]) -> str:
    if position == rows[0].position:
        # One record can have more events than the limit: `--since` would show the same rows again.
        return "There is more: raise --limit."
    return f"There is more: go on with --since {position}, or raise --limit."


async def denials(
    loaded: LoadedSettings,
    namespace: Namespace = "",
    all_namespaces: AllNamespaces = False,
    cluster: Cluster = "",
    since: Since = "",
    until: Until = "",
    limit: Limit = 100,
    output: Output = Format.TABLE,
) -> None:
    """Show denied requests and their reasons, newest first.

    Denials are stored for some weeks (setting denials_days).
    """
    from gpuledger.reading.query_source import ledger_queries

    async with ledger_queries(loaded) as queries:
        scope = queries.scope(namespace, cluster, everywhere=all_namespaces)
        answer = await queries.denials(scope, since=since, until=until, limit=limit)
    answer.announce()
    show_rows(answer.rows, DENIALS, output, "No denials found.", namespace=scope.namespace)
    if answer.more:
        note("Older ones exist: raise --limit.")


def _reason(row: Any) -> str:
    return str(row.denial.reason)


def _detail(row: Any) -> str:
    return amounts_text(row.amounts) if row.amounts else row.note or NOTHING


_HISTORY = Listing(
    name="POSITION",
    wide=(
        POSITION,
        text("TIME", "time"),
        text("TYPE", "type"),
        text("CAUSE", "cause"),
        *PLACE,
        text("KEY", "key"),
        amounts("AMOUNTS", "amounts"),
        text("ACTOR", "actor"),
        text("NOTE", "note"),
    ),
    view=(
        POSITION,
        age("AGE", "time"),
        text("TYPE", "type"),
        CLUSTER,
        NAMESPACE,
        KEY,
        TableColumn("DETAIL", _detail, wraps=True),
    ),
)
DENIALS = Listing(
    name="DECISION",
    wide=(
        text("TIME", "time"),
        *PLACE,
        text("KEY", "key"),
        TableColumn("REASON", _reason),
        TableColumn("DECISION", lambda row: row.denial.decision or NOTHING),
        text("MESSAGE", "message"),
    ),
    view=(
        age("AGE", "time"),
        CLUSTER,
        NAMESPACE,
        KEY,
        TableColumn("REASON", _reason),
        sentence("MESSAGE", "message"),
    ),
)
