"""`gpuledger fit`: where a pod would be placed, and what keeps it from there."""

from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from gpuledger.cli.command_wrapper import LEDGER, command
from gpuledger.cli.output import (
    Format,
    Output,
    TableColumn,
    flag,
    number,
    show_object,
    show_rows,
    text,
)
from gpuledger.cli.time_options import At
from ledger.runtime.settings.setting_sources import LoadedSettings

if TYPE_CHECKING:
    from gpuledger.queries.pod_fit import FitReport, PodFit

PREFERENCES: Final = (
    "node_policy",
    "card_policies",
    "weight_slots",
    "weight_cores",
    "weight_memory",
    "node_score",
)
"""The settings of the order of nodes and cards."""


def _taken(row: Any) -> str:
    """Return the cards of the node that the pod would have."""
    found = (
        f"{one.container}={one.uuid}:{one.memory}MiB" + (f":{one.cores}%" if one.cores else "")
        for one in row.taken
    )
    return ",".join(found) or "-"


_NODES = (
    text("NODE", "node"),
    flag("FITS", "fits"),
    number("SCORE", "score"),
    TableColumn("CARDS", _taken),
    text("REASON", "reason"),
)
_CARDS = (
    TableColumn("NODE", lambda row: row[0]),
    TableColumn("INDEX", lambda row: str(row[1].index), number=True),
    TableColumn("UUID", lambda row: row[1].uuid),
    TableColumn("TYPE", lambda row: row[1].type or "-"),
    TableColumn("FREE-MEMORY", lambda row: str(row[1].free_memory), number=True),
    TableColumn("FREE-CORES", lambda row: str(row[1].free_cores), number=True),
    TableColumn("FREE-SLOTS", lambda row: str(row[1].free_slots), number=True),
    TableColumn("CHOSEN", lambda row: "yes" if row[1].chosen else "no"),
    TableColumn("REASON", lambda row: row[1].reason or "-"),
    TableColumn("SHORT", lambda row: str(row[1].short or "-"), number=True),
)


def register(app: typer.Typer) -> None:
    """Add the command to the app."""
    command(
        app,
        "gpuledger fit -f pod.yaml -n team-a",
        "gpuledger fit -f deployment.yaml --cards",
        "gpuledger fit -f pod.yaml --at 2026-01-31T12:00:00Z -o json",
        takes=(*LEDGER, "cluster", "workload_kinds", *PREFERENCES),
    )(fit)


async def fit(
    loaded: LoadedSettings,
    file: Annotated[
        str,
        typer.Option(
            "--file", "-f", metavar="FILE", help="Pod or workload, JSON or YAML; - reads it."
        ),
    ],
    namespace: Annotated[
        str | None,
        typer.Option(
            "--namespace",
            "-n",
            metavar="NAMESPACE",
            help="Of an object that names none; default if neither does.",
        ),
    ] = None,
    at: At = "",
    cards: Annotated[
        bool, typer.Option("--cards", help="Show every card with what is free of it.")
    ] = False,
    output: Output = Format.TABLE,
) -> None:
    """Show where a pod fits, and on other nodes why not.

    The extender's own choice with the settings given here, and the webhook's own judgement for the
    quotas; nothing is reserved. SCORE is the score sent to the scheduler, 10 for the best node. Of
    a workload, one pod of each template is tried.

    Where it fits nowhere, what would help: fewest pods to evict, and single changes of what it
    asks for. Priorities and disruption budgets of those pods are not looked at. With --cards, one
    line per card: what is free in MiB, percent and containers, and how much it is SHORT of.

    Exits with 4 when it fits nowhere, or a quota refuses it.
    """
    from gpuledger.cli.exit_codes import CommandError, Exit
    from gpuledger.queries import pod_fit

    found = await pod_fit.fit(loaded.settings, file, namespace, at)
    if output is Format.TABLE:
        _show(found, cards=cards)
    else:
        show_object(found, output)
    if not found.allowed:
        raise CommandError(Exit.DENIED, "a quota would refuse it; nothing was changed")
    if not found.fits:
        raise CommandError(Exit.DENIED, "it fits on no node; nothing was changed")


def _show(found: "FitReport", *, cards: bool) -> None:
    for pod in found.pods:
        if len(found.pods) > 1:
            typer.echo(f"{pod.pod}:", err=True)
        _show_pod(pod, cards=cards)
    typer.echo(f"Quotas: {found.answer}", err=True)


def _show_pod(pod: "PodFit", *, cards: bool) -> None:
    nothing = "It asks for no cards." if pod.fits else "No node has announced cards."
    if cards:
        rows = [(node.node, card) for node in pod.nodes for card in node.cards]
        show_rows(rows, _CARDS, Format.TABLE, nothing)
    else:
        show_rows(pod.nodes, _NODES, Format.TABLE, nothing)
    for number_, change in enumerate(pod.changes):
        typer.echo(f"{'or ' if number_ else 'What would help: '}{change.text}", err=True)
