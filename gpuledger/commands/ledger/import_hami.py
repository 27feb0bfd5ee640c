"""`gpuledger import`: takes over the placements of another system."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from gpuledger.cli.command_wrapper import LEDGER, command, group
from gpuledger.cli.output import Format, Output, TableColumn, number, show_object, show_rows, text
from ledger.runtime.settings.setting_sources import LoadedSettings

if TYPE_CHECKING:
    from extender.settlement.hami_import import ImportReport
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


def _pair(header: str, name: str) -> TableColumn:
    """Return a column with the amounts of a card in the ledger and in HAMi."""
    return TableColumn(
        header,
        lambda row: f"{getattr(row, f'used_{name}')}/{getattr(row, f'hami_{name}')}",
        number=True,
    )


_WHY = {
    "trusted_identities": "The webhooks refuse HAMi's annotations until the settings have:",
    "card_schedulers": "The webhooks ignore HAMi's scheduler until the settings have:",
}
"""Consequences of leaving out a setting that an import advises."""

_CARDS = (
    text("NODE", "node"),
    text("UUID", "uuid"),
    number("LIMIT", "memory"),
    _pair("MEMORY/HAMI", "memory"),
    _pair("CORES/HAMI", "cores"),
    _pair("SLOTS/HAMI", "slots"),
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
    from gpuledger.changes.hami_takeover import import_hami
    from gpuledger.cli.exit_codes import Exit

    found = await import_hami(loaded.settings, dry_run=dry_run)
    if output is Format.TABLE:
        show_rows(found.cards, _CARDS, output, "No node announces cards.")
        _tell(found)
    else:
        show_object(found, output)
    if found.problems:
        raise typer.Exit(Exit.FAILED)


def _tell(found: "ImportReport") -> None:
    """Print the result of an import in sentences."""
    done = "would be imported" if found.dry_run else "imported"
    typer.echo(
        f"{found.nodes} nodes and {found.pods} pods {done}; {found.nodes_known} nodes and"
        f" {found.pods_known} pods were known already.",
        err=True,
    )
    for one in found.problems:
        typer.echo(f"Not imported: {one.kind} {one.name}: {one.reason}", err=True)
    if found.accounts is not None:
        for sentence in account_lines(found.accounts, found.settings):
            typer.echo(sentence, err=True)


def account_lines(accounts: "HamiAccounts", settings: Sequence[str]) -> list[str]:
    """Return sentences with HAMi's accounts and the necessary settings."""
    found = [f"HAMi writes as {one.user} ({one.workload})." for one in accounts.proven]
    if not found:
        found = [
            "No HAMi was found: no Deployment or DaemonSet with its labels or image has its rights."
        ]
    found += [
        f"Not HAMi's: {one.user} ({one.workload}) may not patch all pods and nodes."
        for one in accounts.unproven
    ]
    if accounts.unproven_more:
        found.append(f"Not HAMi's, without these rights: {accounts.unproven_more} more accounts.")
    if accounts.unasked:
        found.append(
            f"Not checked: {accounts.unasked} more accounts of workloads similar to HAMi's."
        )
    for line in settings:
        found += [_WHY[line.partition(" ")[0]], line]
    if accounts.proven and not settings:
        found.append("The webhooks trust these accounts.")
    return found
