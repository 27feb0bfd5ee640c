"""`gpuledger explain`: the decision a request would get, without making it."""

from typing import Annotated

import typer

from gpuledger.cli.command_wrapper import LEDGER, command
from gpuledger.cli.output import Format, Output, show_object
from ledger.runtime.settings.setting_sources import LoadedSettings


def register(app: typer.Typer) -> None:
    """Add the command to the app."""
    command(
        app,
        "gpuledger explain -f deployment.yaml -n team-a",
        "kubectl create --dry-run=client -o json -f pod.yaml | gpuledger explain -f -",
        "gpuledger explain -f review.json -o json",
        takes=(*LEDGER, "cluster", "workload_kinds"),
    )(explain)


async def explain(
    loaded: LoadedSettings,
    file: Annotated[
        str,
        typer.Option(
            "--file",
            "-f",
            metavar="FILE",
            help="AdmissionReview, Pod or workload, JSON or YAML; - reads it.",
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
    username: Annotated[
        str, typer.Option("--as", metavar="USER", help="User who would create it.")
    ] = "",
    output: Output = Format.TABLE,
) -> None:
    """Show whether an object would be admitted, and why not.

    The same decision as the validating webhook's, with the settings given here; nothing is
    reserved. Exits with 4 when the answer is no.
    """
    from gpuledger.cli.exit_codes import CommandError, Exit
    from gpuledger.queries import pod_explanation

    found = await pod_explanation.explain(loaded.settings, file, namespace, username)
    if output is Format.TABLE:
        typer.echo(found.answer)
        for warning in found.warnings:
            typer.echo(f"Warning: {warning}", err=True)
    else:
        show_object(found, output)
    if not found.allowed:
        raise CommandError(Exit.DENIED, "it would be denied; nothing was changed")
