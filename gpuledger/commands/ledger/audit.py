"""`gpuledger audit`: checks the log, and lists it event by event."""

from contextlib import aclosing
from typing import Annotated, Any

import typer

from gpuledger.cli.command_wrapper import command, group
from gpuledger.cli.output import Format, Output, RowStream, show_one
from gpuledger.cli.row_options import AllNamespaces, Cluster, Namespace
from gpuledger.cli.tables.display_texts import NOTHING, age_text, amounts_text
from gpuledger.cli.tables.table_columns import KEY_LEAST, Listing, TableColumn, flag, joined, number
from gpuledger.cli.time_options import Since, Until
from ledger.runtime.settings.setting_sources import LoadedSettings

app = group(
    "Check the log, and list its events.",
    "gpuledger audit verify",
    "gpuledger audit replay -n team-a",
)

_REPORT = Listing(
    name="POSITION",
    wide=(
        flag("OK", "ok"),
        number("RECORDS", "records"),
        number("POSITION", "position"),
        TableColumn("PROBLEM", lambda row: row.problem or NOTHING),
    ),
)


@command(
    app,
    "gpuledger audit verify",
    "gpuledger audit verify --expect 1200:4be1c0…",
    "gpuledger audit verify -o json",
)
async def verify(
    loaded: LoadedSettings,
    expect: Annotated[
        str,
        typer.Option(
            "--expect",
            metavar="POSITION:HASH",
            help="A head that was stored elsewhere and must be in the log.",
        ),
    ] = "",
    output: Output = Format.TABLE,
) -> None:
    """Check the whole log.

    The command replays the log. It checks positions, hashes, the chain and every balance, and
    compares stored snapshots with the replay.

    Without --expect, the last head that this store has seen must be in the log. Only a head stored
    elsewhere reveals changes by a user who can write both log and store. Exits with 1 for any
    problem.
    """
    from gpuledger.cli.exit_codes import Exit
    from gpuledger.storage import audit_runs

    report = await audit_runs.verify(loaded.settings, expect)
    show_one(report, _REPORT, output)
    if not report.ok:
        raise typer.Exit(Exit.FAILED)


@command(
    app,
    "gpuledger audit replay -n team-a",
    "gpuledger audit replay -n team-a --since 2026-01-31T00:00:00Z --until 2026-02-01",
    "gpuledger audit replay -o json | jq 'select(.type == \"Released\")'",
)
async def replay(
    loaded: LoadedSettings,
    namespace: Namespace = "",
    all_namespaces: AllNamespaces = False,
    cluster: Cluster = "",
    since: Since = "",
    until: Until = "",
    output: Output = Format.TABLE,
) -> None:
    """List the log's events with actor, cause and time.

    DETAIL is the amounts of an event, or its note without amounts. With -o wide, the list has the
    balances after every event, actor and cause.

    The command verifies every record. JSON is one object per line.
    """
    from gpuledger.storage import audit_runs

    lines = RowStream(_EVENTS, output)
    asked = "" if all_namespaces else namespace
    replayed = audit_runs.replay(loaded.settings, asked, cluster, since, until)
    async with aclosing(replayed):
        async for line in replayed:
            lines.show(line)
    if not lines.begun:
        typer.echo("No events found.", err=True)


def _detail(line: dict[str, Any]) -> str:
    return amounts_text(line["amounts"]) if line["amounts"] else line["note"] or NOTHING


_POSITION = TableColumn("POSITION", lambda line: str(line["position"]), number=True, width=8)
_EVENTS = Listing(
    wide=(
        _POSITION,
        TableColumn("TIME", lambda line: line["time"], width=27),
        TableColumn("TYPE", lambda line: line["type"], width=10),
        TableColumn("CAUSE", lambda line: line["cause"] or NOTHING, width=10),
        TableColumn("KEY", lambda line: line["key"], width=32),
        TableColumn("AMOUNTS", lambda line: joined(line["amounts"]), width=40),
        TableColumn("USED AFTER", lambda line: joined(line["used_after"]), width=40),
        TableColumn("ACTOR", lambda line: line["actor"] or NOTHING, width=12),
        TableColumn("NOTE", lambda line: line["note"] or NOTHING),
    ),
    view=(
        _POSITION,
        TableColumn("AGE", lambda line: age_text(line["time"]), width=5),
        TableColumn("TYPE", lambda line: line["type"], width=17),
        TableColumn("KEY", lambda line: line["key"], width=18, least=KEY_LEAST),
        TableColumn("DETAIL", _detail, wraps=True),
    ),
)
