"""`gpuledger what-if`: recorded arrivals on other nodes, by other policies, under other limits."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from gpuledger.cli.command_wrapper import LEDGER, command
from gpuledger.cli.output import Format, Output, show_object, show_rows, write_line
from gpuledger.cli.tables.table_columns import (
    KEY_LEAST,
    Listing,
    TableColumn,
    name,
    number,
    quantity,
    resource,
    text,
)
from gpuledger.cli.time_options import Since, Until
from gpuledger.commands.ledger.fit import PREFERENCES
from ledger.runtime.settings.setting_sources import LoadedSettings

if TYPE_CHECKING:
    from gpuledger.queries.what_if_scenarios import Scenario, WhatIfReport

_LIMITS = Listing(
    wide=(
        text("ACCOUNT", "account"),
        text("RESOURCE", "resource"),
        number("LIMIT", "limit"),
        number("RESERVATIONS", "reservations"),
        number("REFUSED", "refused"),
        number("BEFORE", "before"),
        number("PEAK", "peak"),
    ),
    view=(
        name("ACCOUNT", "account", KEY_LEAST),
        resource("RESOURCE", "resource"),
        quantity("LIMIT", "limit"),
        number("RESERVATIONS", "reservations"),
        number("REFUSED", "refused"),
        number("BEFORE", "before"),
        quantity("PEAK", "peak"),
    ),
)

Nodes = Annotated[
    list[str] | None,
    typer.Option("--nodes", metavar="+COUNT=NODE", help="Add copies of a node; repeatable."),
]
Without = Annotated[
    list[str] | None,
    typer.Option("--without", metavar="NODE", help="Leave out a node; repeatable."),
]
Limits = Annotated[
    list[str] | None,
    typer.Option(
        "--limit",
        metavar="[NAMESPACE/]QUOTA:KEY=AMOUNT",
        help="Change a limit of a quota; without a namespace, of a universe quota.",
    ),
]
KeepTypes = Annotated[
    bool, typer.Option("--keep-types", help="Keep pods on the type of card that they had.")
]


def register(app: typer.Typer) -> None:
    """Add the command to the app."""
    command(
        app,
        "gpuledger what-if --since 2026-01-30 --until 2026-01-31 --nodes +10=node-7",
        "gpuledger what-if --without node-7 --node-policy spread",
        "gpuledger what-if --limit team-a/main:limits.nvidia.com/gpumem=64000 -o json",
        takes=(*LEDGER, "cluster", *PREFERENCES),
        name="what-if",
    )(what_if)


async def what_if(
    loaded: LoadedSettings,
    since: Since = "",
    until: Until = "",
    nodes: Nodes = None,
    without: Without = None,
    limit: Limits = None,
    keep_types: KeepTypes = False,
    output: Output = Format.TABLE,
) -> None:
    """Replay recorded arrivals with other nodes or rules.

    Pods that got cards in a range of the log arrive again in the same order and stay for the same
    time. RECORDED is the record; REPLAYED lets the extender choose with the settings of the file
    and the environment; WHAT-IF with those of the command line, on the nodes and under the limits
    given. Without --since, the stretch is the 24 hours before its end. All have every node that was
    there in that time, for all of it.

    Limits of the replay: it leaves out pods that never got cards, because the log has no end for
    them. Pods arrive when they were placed, not when they were created. Their requests are read
    back from the amounts that they got: percentages have become MiB, and types, uuids, NUMA
    binding, links between cards and policies of their own are forgotten (--keep-types holds them to
    their type). A pod that fits nowhere is refused for good, and does not wait.
    """
    from gpuledger.queries import what_if_scenarios

    question = what_if_scenarios.WhatIfQuestion(
        since,
        until,
        tuple(nodes or ()),
        tuple(without or ()),
        tuple(limit or ()),
        keep_types,
    )
    report = await what_if_scenarios.run_scenarios(
        loaded.without_options, loaded.settings, question
    )
    if output.is_object:
        show_object(report, output)
    else:
        _show(report, output)


def _show(report: "WhatIfReport", output: Format) -> None:
    typer.echo(f"From {report.since} to {report.until}: {report.arrivals} arrivals.", err=True)
    if report.unbound:
        typer.echo(f"{report.unbound} more got cards and were not bound.", err=True)
    columns = (
        TableColumn("FIGURE", lambda row: row[0]),
        *(
            TableColumn(scenario.name.upper(), lambda row, at=at: row[1][at], number=True)  # type: ignore[misc]
            for at, scenario in enumerate(report.scenarios)
        ),
    )
    lines = _lines(report.scenarios)
    if output is Format.CSV:
        # One table, because a spreadsheet reads one.
        lines += [line for limit in report.limits for line in _limit_lines(limit, len(columns) - 1)]
    show_rows(lines, Listing(columns), output, "")
    if report.limits and output in (Format.TABLE, Format.WIDE):
        write_line()
        show_rows(report.limits, _LIMITS, output, "")


def _limit_lines(limit: Any, scenarios: int) -> list[tuple[str, list[str]]]:
    """Return a line for each number of a changed limit, under the last scenario."""
    fields = ("limit", "reservations", "refused", "before", "peak")
    before = [""] * (scenarios - 1)
    return [
        (f"{limit.account} {limit.resource} {field}", [*before, str(getattr(limit, field))])
        for field in fields
    ]


def _lines(scenarios: "list[Scenario]") -> list[tuple[str, list[str]]]:
    """Return a line for each number, with its value in each scenario."""
    outcomes = [scenario.outcome for scenario in scenarios]
    reasons = dict.fromkeys(reason for outcome in outcomes for reason in outcome.reasons)
    return [
        ("nodes", [str(outcome.nodes) for outcome in outcomes]),
        ("not created", [str(scenario.not_created) for scenario in scenarios]),
        ("placed", [str(outcome.placed) for outcome in outcomes]),
        ("refused", [str(outcome.refused) for outcome in outcomes]),
        *(
            (f"  {reason}", [str(outcome.reasons.get(reason, 0)) for outcome in outcomes])
            for reason in reasons
        ),
        *_used("memory MiB", [outcome.memory for outcome in outcomes]),
        *_used("cores %", [outcome.cores for outcome in outcomes]),
        *_used("cards in use", [outcome.cards for outcome in outcomes]),
        ("whole cards, mean", [f"{outcome.whole:.1f}" for outcome in outcomes]),
        ("GPU-hours", [f"{outcome.gpu_hours:.1f}" for outcome in outcomes]),
    ]


def _used(name: str, uses: list[Any]) -> list[tuple[str, list[str]]]:
    return [
        (f"{name}, all", [str(use.limit) for use in uses]),
        (f"{name}, peak", [_part(use.peak, use) for use in uses]),
        (f"{name}, mean", [_part(use.mean, use) for use in uses]),
    ]


def _part(amount: float, use: Any) -> str:
    """Write an amount with its percentage of the total."""
    shown = str(amount) if isinstance(amount, int) else f"{amount:.1f}"
    return f"{shown} ({amount / use.limit:.0%})" if use.limit else shown
