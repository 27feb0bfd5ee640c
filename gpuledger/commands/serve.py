"""`gpuledger serve`: the service. Every setting is an option."""

from typing import Annotated

import typer

from gpuledger.cli.command_wrapper import command
from ledger.runtime.settings.setting_sources import RETIRED, LoadedSettings
from ledger.runtime.settings.settings import NAMES


def register(app: typer.Typer) -> None:
    """Add the command to the app."""
    command(
        app,
        "gpuledger serve --no-kubernetes",
        "gpuledger serve --kubeconfig ~/.kube/config --cluster east-1 \\",
        "    --register-webhook https://gpuledger.example:8443",
        "gpuledger serve --config /etc/gpuledger.toml --print-config",
        takes=NAMES,
        retired=tuple(RETIRED),
    )(serve)


def serve(
    loaded: LoadedSettings,
    print_config: Annotated[
        bool,
        typer.Option("--print-config", help="Print every setting with its source, and end."),
    ] = False,
) -> None:
    """Run the ledger's service.

    Log, webhooks, settlement, projection and its API are one process with helpers.

    Without NATS servers in the settings it starts an embedded one. It ends cleanly on SIGTERM
    within 10 s. Options override GPULEDGER_ variables of the environment, and these override the
    TOML file.
    """
    if print_config:
        for name, value, source in loaded.describe():
            typer.echo(f"{name} = {value}  # {source}")
        return
    from gpuledger.server.run_service import main

    main(loaded.settings, loaded.ignored)
