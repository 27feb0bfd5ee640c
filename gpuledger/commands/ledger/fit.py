"""`gpuledger fit`: shows the nodes on which a pod fits, and the reasons for the others."""

from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from gpuledger.cli.command_wrapper import READING, command
from gpuledger.cli.output import Format, Output, show_object, show_rows
from gpuledger.cli.prose import note
from gpuledger.cli.tables.display_texts import NOTHING
from gpuledger.cli.tables.table_columns import (
    KEY_LEAST,
    Listing,
    Omitted,
    TableColumn,
    flag,
    name,
    number,
    sentence,
    text,
)
from gpuledger.cli.time_options import At
from ledger.runtime.settings.setting_sources import LoadedSettings

if TYPE_CHECKING:
    from gpuledger.manifest_fit.fit_report import FitReport, PodFit

PREFERENCES: Final = (
    "node_policy",
    "card_policies",
    "weight_slots",
    "weight_cores",
    "weight_memory",
    "node_score",
)
"""The settings that order nodes and cards."""

_OF_STORE: Final = ("cluster", "workload_kinds", *PREFERENCES)
"""Settings of the decision, which a service has itself."""


def _taken(row: Any) -> str:
    """Return the cards of the node that the pod would have."""
    cards = (
        f"{share.container}={share.uuid}:{share.memory}MiB"
        + (f":{share.cores}%" if share.cores else "")
        for share in row.taken
    )
    return ",".join(cards) or "-"


def _indexes(row: Any) -> str:
    """Return the indexes of the cards of the node that the pod would have."""
    taken = {share.uuid for share in row.taken}
    return ",".join(str(card.index) for card in row.cards if card.uuid in taken) or NOTHING


def _verdict(row: Any) -> str:
    """Return why a card cannot be given, with the missing amount, or that it is chosen."""
    if row[1].short:
        return f"{row[1].reason} short by {row[1].short}"
    return str(row[1].reason) or ("chosen" if row[1].chosen else NOTHING)


_NODES = Listing(
    wide=(
        text("NODE", "node"),
        flag("FITS", "fits"),
        number("SCORE", "score"),
        TableColumn("CARDS", _taken),
        text("REASON", "reason"),
    ),
    view=(
        name("NODE", "node", KEY_LEAST),
        flag("FITS", "fits"),
        number("SCORE", "score"),
        TableColumn("CARDS", _indexes, least=KEY_LEAST, omitted=Omitted.EMPTY),
        sentence("REASON", "reason"),
    ),
)
_FREE = (
    TableColumn("FREE-MEMORY", lambda row: str(row[1].free_memory), number=True),
    TableColumn("FREE-CORES", lambda row: str(row[1].free_cores), number=True),
    TableColumn("FREE-SLOTS", lambda row: str(row[1].free_slots), number=True),
)
_CARDS = Listing(
    wide=(
        TableColumn("NODE", lambda row: row[0]),
        TableColumn("INDEX", lambda row: str(row[1].index), number=True),
        TableColumn("UUID", lambda row: row[1].uuid),
        TableColumn("TYPE", lambda row: row[1].type or NOTHING),
        *_FREE,
        TableColumn("CHOSEN", lambda row: "yes" if row[1].chosen else "no"),
        TableColumn("REASON", lambda row: row[1].reason or NOTHING),
        TableColumn("SHORT", lambda row: str(row[1].short or NOTHING), number=True),
    ),
    view=(
        TableColumn("NODE", lambda row: row[0], least=KEY_LEAST),
        TableColumn("INDEX", lambda row: str(row[1].index), number=True),
        TableColumn("FREE-MEMORY", lambda row: f"{row[1].free_memory}Mi", number=True),
        TableColumn("FREE-CORES", lambda row: f"{row[1].free_cores}%", number=True),
        TableColumn("FREE-SLOTS", lambda row: str(row[1].free_slots), number=True),
        TableColumn("REASON", _verdict, wraps=True),
    ),
)


def register(app: typer.Typer) -> None:
    """Add the command to the app."""
    command(
        app,
        "gpuledger fit -f pod.yaml -n team-a",
        "gpuledger fit -f deployment.yaml --cards",
        "gpuledger fit -f pod.yaml --at 2026-01-31T12:00:00Z -o json",
        takes=(*READING, *_OF_STORE),
    )(fit)


async def fit(
    loaded: LoadedSettings,
    file: Annotated[
        str,
        typer.Option(
            "--file",
            "-f",
            metavar="FILE",
            help="Pod or workload, JSON or YAML; - is standard input.",
        ),
    ],
    namespace: Annotated[
        str | None,
        typer.Option(
            "--namespace",
            "-n",
            metavar="NAMESPACE",
            help="For an object without a namespace; otherwise default.",
        ),
    ] = None,
    at: At = "",
    cards: Annotated[
        bool, typer.Option("--cards", help="Show every card with its free amounts.")
    ] = False,
    output: Output = Format.TABLE,
) -> None:
    """Show the nodes on which a pod fits, with all reasons.

    The choice is that of the extender with the given settings, and the quota decision that of the
    webhook; nothing is reserved. SCORE is the score sent to the scheduler, 10 for the best node.
    CARDS are indexes of cards. Of a workload, one pod of each template is tried.

    If it fits on no node, the command lists remedies: the fewest pods to evict, and single changes
    of its request. It ignores priorities and disruption budgets of those pods. With --cards, each
    line is a card: its free amounts in MiB, percent and containers, and the amount that is SHORT.
    Devices of resource claims are not tried, because kube-scheduler's allocator chooses them.
    A service leaves out the cards in ResourceSlices and counts them; a store has no slices.
    Exits with 4 if the pod fits on no node or a quota denies it, and with 1 if it may fit and has
    resource claims.
    """
    from gpuledger.reading.query_source import ledger_queries

    async with ledger_queries(loaded, of_store=_OF_STORE) as queries:
        report = await queries.fit(file, namespace, at)
    if output.is_object:
        show_object(report, output)
    else:
        _show(report, output, cards=cards)
    _require_fit(report)


def _require_fit(report: "FitReport") -> None:
    """Raise CommandError unless a manifest fits."""
    from gpuledger.cli.exit_codes import CommandError, Exit

    if not report.allowed:
        raise CommandError(Exit.DENIED, "a quota would deny it; nothing was changed")
    if report.is_undecided():
        raise CommandError(
            Exit.FAILED, "it has resource claims, whose devices are not tried; nothing was changed"
        )
    if not report.fits:
        raise CommandError(Exit.DENIED, "it fits on no node; nothing was changed")


def _show(report: "FitReport", output: Format, *, cards: bool) -> None:
    for pod in report.pods:
        if len(report.pods) > 1:
            note(f"{pod.pod}:")
        _show_pod(pod, output, cards=cards, restricted=report.restricted)
    if report.restricted:
        note("Nodes and cards are not shown, for want of the right to list cards.")
    if left_out := report.left_out():
        note(left_out)
    note(f"Quotas: {report.answer}")


def _show_pod(pod: "PodFit", output: Format, *, cards: bool, restricted: bool) -> None:
    if pod.claims:
        note(f"{pod.untried()}.")
        if not pod.total:
            return
    if restricted:
        note(f"It fits on {pod.fitting} of {pod.total} nodes with cards.")
        for entry in pod.reasons:
            note(f"{entry.nodes} nodes: {entry.reason}")
    else:
        _show_nodes(pod, output, cards=cards)
    for number_, change in enumerate(pod.changes):
        note(f"{'or ' if number_ else 'Changes that would help: '}{change.text}")


def _show_nodes(pod: "PodFit", output: Format, *, cards: bool) -> None:
    nothing = "It requests no cards." if pod.fits else "No node has announced cards."
    if cards:
        rows = [(node.node, card) for node in pod.nodes for card in node.cards]
        show_rows(rows, _CARDS, output, nothing)
    else:
        show_rows(pod.nodes, _NODES, output, nothing)
