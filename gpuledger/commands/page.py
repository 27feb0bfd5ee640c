"""`gpuledger page`: the pages of a store or a backup, for a browser on this machine."""

from typing import Annotated

import typer

from gpuledger.cli.command_wrapper import LEDGER, command
from gpuledger.commands.ledger.fit import PREFERENCES
from ledger.runtime.settings.setting_sources import LoadedSettings


def register(app: typer.Typer) -> None:
    """Add the command to the app."""
    command(
        app,
        "gpuledger page",
        "gpuledger page --store-dir /var/lib/gpuledger --port 8480",
        "gpuledger page --backup ledger.backup",
        takes=(*LEDGER, "cluster", "workload_kinds", *PREFERENCES),
    )(page)


def page(
    loaded: LoadedSettings,
    backup: Annotated[
        str, typer.Option("--backup", metavar="FILE", help="Show a backup instead of the store.")
    ] = "",
    port: Annotated[
        int | None,
        typer.Option(
            "--port",
            metavar="PORT",
            min=0,
            max=65_535,
            help="Port on loopback; 0: a free one. Default: 8480, or a free one if it is in use.",
        ),
    ] = None,
) -> None:
    """Show a ledger as pages in a browser on this machine.

    Prints the address of the pages and serves them on loopback. Needs no running service and no
    cluster. Beside a running service the pages follow it. Pods that wait are shown by the service
    only. Ends on Ctrl-C.
    """
    from gpuledger.page.from_store.store_pages import main

    main(loaded, backup, port, typer.echo)
