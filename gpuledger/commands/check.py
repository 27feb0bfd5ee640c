"""`gpuledger check`: checks an installation, each finding with its remedy."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Final

import msgspec
import typer

from gpuledger.cli.command_wrapper import command
from gpuledger.cli.output import Format, Output, show_rows
from gpuledger.cli.tables.table_columns import KEY_LEAST, Listing, name, sentence, text
from ledger.runtime.settings.setting_sources import LoadedSettings

if TYPE_CHECKING:
    from gpuledger.check.install_findings import InstallFinding

_TAKES: Final = (
    "kubeconfig",
    "namespace",
    "nats",
    "vendors",
    "vendors_file",
    "trusted_identities",
    "trust_hami_defaults",
    "card_schedulers",
)

WAIT_SECONDS_MAX: Final = 3_600


Wait = Annotated[
    float,
    typer.Option(
        "--wait",
        metavar="SECONDS",
        min=0,
        max=WAIT_SECONDS_MAX,
        help="Repeat until no check fails, at most so long.",
    ),
]
Release = Annotated[
    str, typer.Option("--release", metavar="NAME", help="Name of the helm release.")
]
FullName = Annotated[
    str,
    typer.Option(
        "--full-name",
        metavar="NAME",
        help="Name of the objects, if the chart's fullnameOverride sets it.",
    ),
]
ProbeNamespace = Annotated[
    str,
    typer.Option(
        "--probe-namespace",
        metavar="NAMESPACE",
        help="Namespace of the dry runs: not exempt, without quotas for cards.",
    ),
]


AgentNamespace = Annotated[
    str,
    typer.Option(
        "--agent-namespace",
        metavar="NAMESPACE",
        help="Namespace of the agents; without it, the name of the objects and `-nodes`.",
    ),
]


StorageClasses = Annotated[
    list[str] | None,
    typer.Option(
        "--storage-class",
        metavar="NAME",
        help="With --before-install: StorageClass of a volume, '' for the default one. Repeatable.",
    ),
]


class FindingLine(msgspec.Struct, frozen=True):
    """A line of the table: a finding, or its remedy."""

    outcome: str
    check: str
    text: str


LINES: Final = Listing(
    (text("RESULT", "outcome"), name("CHECK", "check", KEY_LEAST), sentence("FOUND", "text")),
    name="CHECK",
)
_FINDINGS: Final = Listing(
    name="CHECK",
    wide=(
        text("RESULT", "outcome"),
        text("CHECK", "check"),
        text("FOUND", "observation"),
        text("REMEDY", "remedy"),
    ),
)


def register(app: typer.Typer) -> None:
    """Add the command to the app."""
    command(
        app,
        "gpuledger check --kubeconfig ~/.kube/config",
        "gpuledger check --namespace gpuledger --wait 120",
        "gpuledger check --kubeconfig ~/.kube/config --before-install -o json",
        takes=_TAKES,
    )(check)


async def check(  # noqa: PLR0913 - every option is one
    loaded: LoadedSettings,
    wait: Wait = 0,
    before_install: Annotated[
        bool, typer.Option("--before-install", help="Check what an installation needs.")
    ] = False,
    storage_class: StorageClasses = None,
    release: Release = "gpuledger",
    full_name: FullName = "",
    agent_namespace: AgentNamespace = "",
    probe_namespace: ProbeNamespace = "default",
    output: Output = Format.TABLE,
) -> None:
    """Check an installation, each finding with its remedy.

    Asks the API server and the replicas about webhooks, certificates, log, settlement, clocks and
    nodes, and creates two pods as dry runs, one to be allowed and one to be denied. Nothing is
    stored.

    Replicas answer inside the cluster: `helm test` runs this command there. Outside, the result of
    checks that need them is `not asked`, which is neither ok nor a failure.

    --before-install checks what an installation needs instead: version, rights, names in use,
    storage, HAMi and its accounts.

    Exits with 1 if a check fails, and with 6 if one still fails after --wait.
    """
    from gpuledger.check import check_run
    from gpuledger.check.install_findings import exit_status

    findings = await check_run.check_installation(
        loaded.settings,
        release=release,
        full_name=full_name,
        agent_namespace=agent_namespace,
        probes=probe_namespace,
        wait_seconds=wait,
        before_install=before_install,
        storage_classes=storage_class or (),
    )
    if output in (Format.TABLE, Format.WIDE):
        show_rows(_lines(findings), LINES, output, "")
        typer.echo(_summary(findings), err=True)
    else:
        show_rows(findings, _FINDINGS, output, "")
    raise typer.Exit(exit_status(findings, waited=wait > 0))


def _lines(findings: Sequence["InstallFinding"]) -> list[FindingLine]:
    """Return the lines of a table: each finding, and its remedy below it."""
    lines = []
    for finding in findings:
        lines.append(FindingLine(finding.outcome, finding.check, finding.observation))
        if finding.remedy:
            lines.append(FindingLine("", "", f"remedy: {finding.remedy}"))
    return lines


def _summary(findings: Sequence["InstallFinding"]) -> str:
    """Return how many checks had each result."""
    counts: dict[str, int] = {}
    for finding in findings:
        counts[finding.outcome] = counts.get(finding.outcome, 0) + 1
    return ", ".join(f"{count} {outcome}" for outcome, count in counts.items()) + "."
