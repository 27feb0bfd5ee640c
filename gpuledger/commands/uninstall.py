"""`gpuledger uninstall`: removes what the service has written into a cluster."""

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Final, Literal

import typer
from msgspec.structs import replace

from gpuledger.cli.command_wrapper import command
from gpuledger.cli.output import Format, Output, show_object, show_rows
from gpuledger.cli.tables.table_columns import KEY_LEAST, Listing, Omitted, name, sentence, text
from gpuledger.commands.check import FullName, Release
from ledger.runtime.settings.setting_sources import LoadedSettings

if TYPE_CHECKING:
    from gpuledger.removal.removal_plan import RemovalPlan
    from gpuledger.removal.removal_tasks import RemovedThing
    from gpuledger.removal.uninstall_run import RemovalReport

_TAKES: Final = ("kubeconfig", "namespace", "vendors", "vendors_file", "managed_resources")
THINGS: Final = Listing(
    name="NAME",
    wide=(
        text("ACTION", "action"),
        text("KIND", "kind"),
        text("NAME", "name"),
        text("REASON", "problem"),
    ),
    view=(
        text("ACTION", "action"),
        name("KIND", "kind"),
        name("NAME", "name", KEY_LEAST),
        replace(sentence("REASON", "problem"), omitted=Omitted.EMPTY),
    ),
)

AgentNamespace = Annotated[
    str,
    typer.Option(
        "--agent-namespace",
        metavar="NAMESPACE",
        help="Namespace of the agents; without it, the name of the objects and `-nodes`.",
    ),
]
ZeroKeys = Annotated[
    Literal["report", "delete"],
    typer.Option(
        "--zero-quotas",
        metavar="report|delete",
        help="Keys of 0 that Kubernetes goes on enforcing.",
    ),
]


def register(app: typer.Typer) -> None:
    """Add the command to the app."""
    command(
        app,
        "gpuledger uninstall --kubeconfig ~/.kube/config --namespace gpuledger --dry-run",
        "gpuledger uninstall --kubeconfig ~/.kube/config --namespace gpuledger --yes",
        "gpuledger uninstall --namespace gpu --release east --zero-quotas delete --yes",
        takes=_TAKES,
    )(uninstall)


async def uninstall(
    loaded: LoadedSettings,
    yes: Annotated[bool, typer.Option("--yes", help="Remove without asking.")] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show what would be removed; write nothing.")
    ] = False,
    release: Release = "gpuledger",
    full_name: FullName = "",
    agent_namespace: AgentNamespace = "",
    zero_quotas: ZeroKeys = "report",
    output: Output = Format.TABLE,
) -> None:
    """Remove everything that would block after the service.

    In this order: webhook configurations; the service, its scheduler and its agents are stopped;
    scheduling gates of pods, default quotas, annotations of pods and nodes, labels of nodes, cards
    that gpuledger's agents announced, the written status of quotas and policies. The log, the
    definitions and their objects stay, and annotations of HAMi, which HAMi reads. The service is
    not needed, and the command may be repeated. Afterwards remove the objects: `helm uninstall`,
    which runs this command itself, or `kubectl delete -k deploy`.

    Webhooks that call a Service in another namespace than --namespace are not removed. Objects of
    others with gpuledger's labels, gates that tenants write and pods of lost nodes are reported.

    Kubernetes itself enforces a ResourceQuota with `requests.nvidia.com/gpu: 0`, with gpuledger
    and without it. Such keys are reported, or removed with `--zero-quotas delete`.

    Exits with 1 if anything is left.
    """
    from gpuledger.check.check_run import connect
    from gpuledger.cli.exit_codes import Exit
    from gpuledger.removal import removal_plan, uninstall_run
    from gpuledger.removal.removal_scope import scope_of

    scope = scope_of(
        loaded.settings,
        release=release,
        full_name=full_name,
        agents=agent_namespace,
        zero=zero_quotas,
    )
    async with await connect(loaded.settings) as client:
        if dry_run or not yes:
            _show_plan(await removal_plan.plan_removal(client, scope), output)
            if dry_run:
                return
            _ask_for_consent()
        report = await uninstall_run.remove(client, scope)
    _show_report(report, output)
    raise typer.Exit(Exit.FAILED if report.left else Exit.OK)


def _ask_for_consent() -> None:
    """Ask a person whether to remove. Raises CommandError without consent."""
    from gpuledger.cli.exit_codes import CommandError, Exit

    if not (sys.stdin.isatty() and typer.confirm("Remove these?", err=True)):
        raise CommandError(Exit.USAGE, "nothing was removed; give --yes, or --dry-run")


def _show_plan(plan: "RemovalPlan", output: Format) -> None:
    """Print what would be removed. Raises CommandError if that is not known."""
    from gpuledger.cli.exit_codes import CommandError, Exit
    from gpuledger.removal import uninstall_run

    uninstall_run.refuse_elsewhere(plan)
    if plan.unread:
        _left(plan.unread)
        raise CommandError(Exit.FAILED, "nothing was removed, because these lists are not read")
    _show(plan.things(), output, "Nothing is to be removed.")
    _mention(plan.reported)


def _show_report(report: "RemovalReport", output: Format) -> None:
    if output.is_object:
        show_object(report, output)
        return
    _show(report.removed, output, "Nothing was there to remove.")
    _mention(report.reported)
    _left(report.left)
    if not report.left:
        typer.echo("Nothing else is left." if report.reported else "Nothing is left.", err=True)


def _show(things: Sequence["RemovedThing"], output: Format, nothing: str) -> None:
    show_rows(things, THINGS, output, nothing)


def _mention(things: Sequence["RemovedThing"]) -> None:
    """Print things that stay by intention, on standard error."""
    for thing in things:
        reason = f" ({thing.problem})" if thing.problem else ""
        typer.echo(f"Stays: {thing.kind} {thing.name}: {thing.action}{reason}", err=True)


def _left(things: Sequence["RemovedThing"]) -> None:
    """Print the things that could not be removed, on standard error."""
    for thing in things:
        typer.echo(f"Left: {thing.kind} {thing.name}: {thing.action}: {thing.problem}", err=True)
