"""`gpuledger extender`: the service without webhooks, for a scheduler."""

from typing import Final

import typer

from gpuledger.cli.command_wrapper import command
from ledger.runtime.settings.setting_sources import RETIRED, LoadedSettings
from ledger.runtime.settings.settings import NAMES

_OF_ADMISSION: Final = ("register_webhook", "extender")
"""Settings that this command sets itself."""


def register(app: typer.Typer) -> None:
    """Add the command to the app."""
    command(
        app,
        "gpuledger extender --nats tls://nats.example:4222 --kubeconfig ~/.kube/config",
        "gpuledger extender --config /etc/gpuledger.toml --listen 127.0.0.1:8443",
        takes=tuple(name for name in NAMES if name not in _OF_ADMISSION),
        retired=tuple(RETIRED),
    )(extender)


def extender(loaded: LoadedSettings) -> None:
    """Run the scheduler extender without the webhooks.

    It is `gpuledger serve` on the same log, without reviews and registration. Run one beside each
    kube-scheduler. It places pods and settles as any replica.
    """
    from gpuledger.server.run_service import main_extender

    main_extender(loaded.settings, loaded.ignored)
