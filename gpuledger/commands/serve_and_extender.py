"""`gpuledger serve` and `gpuledger extender`: the service with the webhooks, or without them."""

from typing import Annotated, Final

import typer

from gpuledger.cli.command_wrapper import command
from gpuledger.cli.output import write_line
from ledger.runtime.settings.client_section import CLIENT
from ledger.runtime.settings.setting_sources import RETIRED, LoadedSettings
from ledger.runtime.settings.settings import NAMES

_OF_SERVICE: Final = tuple(name for name in NAMES if name not in CLIENT)
"""Settings that a service reads."""

_OF_ADMISSION: Final = ("register_webhook", "extender")
"""Settings that `gpuledger extender` sets itself."""


def register(app: typer.Typer) -> None:
    """Add the commands to the app; every setting is an option."""
    command(
        app,
        "gpuledger serve --no-kubernetes",
        "gpuledger serve --kubeconfig ~/.kube/config --cluster east-1 \\",
        "    --register-webhook https://gpuledger.example:8443",
        "gpuledger serve --config /etc/gpuledger.toml --print-config",
        takes=_OF_SERVICE,
        retired=tuple(RETIRED),
    )(serve)
    command(
        app,
        "gpuledger extender --nats tls://nats.example:4222 --kubeconfig ~/.kube/config",
        "gpuledger extender --config /etc/gpuledger.toml --listen 127.0.0.1:8443",
        takes=tuple(name for name in _OF_SERVICE if name not in _OF_ADMISSION),
        retired=tuple(RETIRED),
    )(extender)


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
            write_line(f"{name} = {value}  # {source}")
        return
    from gpuledger.server.run_service import main

    main(loaded.settings, loaded.ignored)


def extender(loaded: LoadedSettings) -> None:
    """Run the scheduler extender without the webhooks.

    It is `gpuledger serve` on the same log, without reviews and registration. Run one beside each
    kube-scheduler. It places pods and settles as any replica.
    """
    from gpuledger.server.run_service import main_extender

    main_extender(loaded.settings, loaded.ignored)
