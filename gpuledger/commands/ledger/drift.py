"""`gpuledger drift`: corrected differences between cluster and ledger."""

from typing import Any

import typer

from gpuledger.cli.command_wrapper import READING, command
from gpuledger.cli.output import Format, Output, show_rows
from gpuledger.cli.prose import note
from gpuledger.cli.row_options import AllNamespaces, Cluster, Limit, Namespace
from gpuledger.cli.tables.display_texts import NOTHING, amounts_text, resource_text
from gpuledger.cli.tables.table_columns import (
    CLUSTER,
    KEY,
    NAMESPACE,
    POSITION,
    Listing,
    TableColumn,
    age,
    amounts,
    text,
)
from gpuledger.cli.time_options import Since, Until
from ledger.runtime.settings.setting_sources import LoadedSettings


def register(app: typer.Typer) -> None:
    """Add the command to the app."""
    command(
        app,
        "gpuledger drift",
        "gpuledger drift -n team-a --since 2026-01-31T12:00:00Z",
        "gpuledger drift -o json | jq 'map(select(.over != []))'",
        takes=READING,
    )(drift)


async def drift(
    loaded: LoadedSettings,
    namespace: Namespace = "",
    all_namespaces: AllNamespaces = False,
    cluster: Cluster = "",
    since: Since = "",
    until: Until = "",
    limit: Limit = 1_000,
    output: Output = Format.TABLE,
) -> None:
    """Show the corrections of the ledger, newest first.

    unreserved: the object exists without a reservation, because the webhook was bypassed or the
    object is older than the ledger. late: the object appeared after its hold had ended. allocated:
    resource claims gave the object devices that take more than was reserved. deleted, finished: the
    object ended without an observed deletion, and a full list showed that.

    OVER names the quotas that exceed their limits because of the correction. The ledger is correct
    again after each of these, so the exit code is always 0.
    """
    from gpuledger.reading.query_source import ledger_queries

    async with ledger_queries(loaded) as queries:
        scope = queries.scope(namespace, cluster, everywhere=all_namespaces)
        answer = await queries.drift(scope, since=since, until=until, limit=limit)
    answer.announce()
    show_rows(answer.rows, _DRIFT, output, "No corrections found.", namespace=scope.namespace)
    for stranger in answer.users:
        note(
            f"{stranger.username} made {stranger.objects} objects that count beside the owner that"
            " they name: if it is the controller of their owners' KIND, add"
            f" KIND={stranger.username} to controller_identities."
        )
    if answer.more:
        note("Older ones exist: raise --limit.")


def _over(row: Any) -> str:
    exceeded = (
        f"{quota.account} {quota.resource} {quota.used} of {quota.limit}" for quota in row.over
    )
    return ", ".join(exceeded) or NOTHING


def _amounts_and_over(row: Any) -> str:
    exceeded = ", ".join(
        f"{quota.account} {resource_text(quota.resource)} {quota.used} of {quota.limit}"
        for quota in row.over
    )
    shown = amounts_text(row.amounts)
    return f"{shown}; over: {exceeded}" if exceeded else shown


_DRIFT = Listing(
    name="POSITION",
    wide=(
        POSITION,
        text("TIME", "time"),
        text("CAUSE", "cause"),
        text("CLUSTER", "cluster"),
        text("NAMESPACE", "namespace"),
        text("KEY", "key"),
        text("UID", "uid"),
        amounts("AMOUNTS", "amounts"),
        TableColumn("OVER", _over),
    ),
    view=(
        age("AGE", "time"),
        text("CAUSE", "cause"),
        CLUSTER,
        NAMESPACE,
        KEY,
        TableColumn("AMOUNTS, OVER", _amounts_and_over, wraps=True),
    ),
)
