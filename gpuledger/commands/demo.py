"""`gpuledger demo`: the life of a ledger, shown and checked."""

from typing import Annotated

import typer

from gpuledger.cli.command_wrapper import ExplainedCommand, epilog


def register(app: typer.Typer) -> None:
    """Add the command to the app."""
    app.command(cls=ExplainedCommand, epilog=epilog("gpuledger demo", "gpuledger demo --keep"))(
        demo
    )


def demo(
    keep: Annotated[
        bool, typer.Option("--keep", help="Keep the ledger afterwards, to look around in it.")
    ] = False,
) -> None:
    """Show the life of a ledger, with a crash in the middle.

    Starts the service in a directory of its own, sends it recorded reviews of a real API server,
    kills it in the middle of them, starts it again and checks what it promised. Needs no cluster
    and no card, takes a minute and leaves nothing behind. Exits with 1 when a claim does not hold.
    """
    import asyncio

    from gpuledger.cli.exit_codes import Exit
    from gpuledger.demo.story import run

    if not asyncio.run(run(keep)):
        raise typer.Exit(Exit.FAILED)
