"""`gpuledger explain`: shows the decision about a request without making it."""

import sys
from typing import Annotated, Final

import typer

from gpuledger.cli.command_wrapper import READING, command
from gpuledger.cli.output import Format, ObjectOutput, show_object, write_line
from gpuledger.cli.prose import as_prose, note
from ledger.runtime.settings.setting_sources import LoadedSettings

_OF_STORE: Final = ("cluster", "workload_kinds")
"""Settings of the decision, which a service has itself."""


def register(app: typer.Typer) -> None:
    """Add the command to the app."""
    command(
        app,
        "gpuledger explain -f deployment.yaml -n team-a",
        "kubectl create --dry-run=client -o json -f pod.yaml | gpuledger explain -f -",
        "gpuledger explain -f review.json -o json",
        takes=(*READING, *_OF_STORE),
    )(explain)


async def explain(
    loaded: LoadedSettings,
    file: Annotated[
        str,
        typer.Option(
            "--file",
            "-f",
            metavar="FILE",
            help="AdmissionReview, pod, workload or resource claim, as JSON or YAML; - is standard"
            " input.",
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
    username: Annotated[
        str, typer.Option("--as", metavar="USER", help="User that would create it.")
    ] = "",
    output: ObjectOutput = Format.TABLE,
) -> None:
    """Show whether an object would be admitted, or the denial.

    The decision is that of the validating webhook with the given settings; nothing is reserved.
    Exits with 4 for a denial.
    """
    from gpuledger.cli.exit_codes import CommandError, Exit
    from gpuledger.reading.query_source import ledger_queries

    async with ledger_queries(loaded, of_store=_OF_STORE) as queries:
        explanation = await queries.explain(file, namespace, username)
    if output is Format.TABLE:
        write_line(as_prose(explanation.answer, sys.stdout))
        for warning in explanation.warnings:
            note(f"Warning: {warning}")
    else:
        show_object(explanation, output)
    if not explanation.allowed:
        raise CommandError(Exit.DENIED, "it would be denied; nothing was changed")
