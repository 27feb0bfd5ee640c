"""`gpuledger import`: takes over the placements of another system."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from gpuledger.cli.command_wrapper import LEDGER, command, group
from gpuledger.cli.output import Format, Output, show_object, show_rows
from gpuledger.cli.tables.table_columns import Listing, TableColumn, name, number, text
from ledger.runtime.settings.setting_sources import LoadedSettings

if TYPE_CHECKING:
    from extender.settlement.hami.hami_import import ImportReport
    from ledger.kube.cluster.hami_accounts import HamiAccounts

app = group(
    "Take over what another system has placed.",
    "gpuledger import hami --cluster east-1 --dry-run",
)

_TAKES = (
    *LEDGER,
    "cluster",
    "kubeconfig",
    "vendors",
    "vendors_file",
    "gpu_types",
    "node_keeper",
    "card_scaling",
    "namespace",
    "trusted_identities",
    "trust_hami_defaults",
    "scheduler_name",
    "card_schedulers",
)


def _pair(header: str, amount: str) -> TableColumn:
    """Return a column with the amounts of a card in the ledger and in HAMi."""
    return TableColumn(
        header,
        lambda row: f"{getattr(row, f'used_{amount}')}/{getattr(row, f'hami_{amount}')}",
        number=True,
    )


_WHY = {
    "trusted_identities": "The webhooks refuse HAMi's annotations until the settings have:",
    "card_schedulers": "The webhooks ignore HAMi's scheduler until the settings have:",
}
"""Consequences of leaving out a setting that an import advises."""

_AMOUNTS = (
    number("LIMIT", "memory"),
    _pair("MEMORY/HAMI", "memory"),
    _pair("CORES/HAMI", "cores"),
    _pair("SLOTS/HAMI", "slots"),
)
CARDS = Listing(
    wide=(text("NODE", "node"), text("UUID", "uuid"), *_AMOUNTS),
    view=(name("NODE", "node"), name("UUID", "uuid"), *_AMOUNTS),
    name="UUID",
)


@command(
    app,
    "gpuledger import hami --cluster east-1 --dry-run",
    "gpuledger import hami --cluster east-1 -o json",
    takes=_TAKES,
)
async def hami(
    loaded: LoadedSettings,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show what would be imported; write nothing.")
    ] = False,
    output: Output = Format.TABLE,
) -> None:
    """Take over cards and pods from HAMi.

    Imports the cards that nodes announce and the pods that HAMi has placed on them. The command
    reads both once through the API server. It shows the amounts of every card in the ledger and in
    HAMi. A service that settles the cluster does the same continuously.

    It finds HAMi's accounts in any release and namespace, and prints the settings with which the
    webhooks trust them. Exits with 1 if a node or pod was not understood.
    """
    from gpuledger.changes.one_time_hami_import import import_hami
    from gpuledger.cli.exit_codes import Exit

    report = await import_hami(loaded.settings, dry_run=dry_run)
    if output.is_object:
        show_object(report, output)
    else:
        show_rows(report.cards, CARDS, output, "No node announces cards.")
        _print_report(report)
    if report.problems:
        raise typer.Exit(Exit.FAILED)


def _print_report(report: "ImportReport") -> None:
    """Print the result of an import in sentences."""
    done = "would be imported" if report.dry_run else "imported"
    typer.echo(
        f"{report.nodes} nodes and {report.pods} pods {done}; {report.nodes_known} nodes and"
        f" {report.pods_known} pods were known already.",
        err=True,
    )
    for problem in report.problems:
        typer.echo(f"Not imported: {problem.kind} {problem.name}: {problem.reason}", err=True)
    if report.accounts is not None:
        for sentence in account_lines(report.accounts, report.settings):
            typer.echo(sentence, err=True)


def account_lines(accounts: "HamiAccounts", settings: Sequence[str]) -> list[str]:
    """Return sentences with HAMi's accounts and the necessary settings."""
    sentences = [
        f"HAMi writes as {account.user} ({account.workload})." for account in accounts.proven
    ]
    if not sentences:
        sentences = [
            "No HAMi was found: no Deployment or DaemonSet with its labels or image has its rights."
        ]
    sentences += [
        f"Not HAMi's: {account.user} ({account.workload}) may not patch all pods and nodes."
        for account in accounts.unproven
    ]
    if accounts.unproven_more:
        sentences.append(
            f"Not HAMi's, without these rights: {accounts.unproven_more} more accounts."
        )
    if accounts.unasked:
        sentences.append(
            f"Not checked: {accounts.unasked} more accounts of workloads similar to HAMi's."
        )
    for line in settings:
        sentences += [_WHY[line.partition(" ")[0]], line]
    if accounts.proven and not settings:
        sentences.append("The webhooks trust these accounts.")
    return sentences
