"""`gpuledger pseudonym`: prints the pseudonym of a user's name in the log."""

from typing import Annotated

import typer

from gpuledger.cli.command_wrapper import command
from gpuledger.cli.output import write_line
from ledger.runtime.settings.setting_sources import LoadedSettings


def register(app: typer.Typer) -> None:
    """Add the command to the app."""
    command(
        app,
        "gpuledger pseudonym alice --pseudonym-key-file /etc/gpuledger/pseudonym.key",
        "gpuledger audit replay -o json | grep $(gpuledger pseudonym alice)",
        takes=("pseudonym_key_file",),
    )(pseudonym)


def pseudonym(
    loaded: LoadedSettings,
    user: Annotated[str, typer.Argument(metavar="USER", help="User name at the API server.")],
) -> None:
    """Print the pseudonym of a user's name in the log.

    The command needs the key of the service. With an older key, it prints the pseudonym of that
    key.
    """
    from gpuledger.cli.exit_codes import CommandError, Exit
    from gpuledger.wiring.user_pseudonyms import recorded_names

    if not user:
        raise CommandError(Exit.USAGE, "USER is empty: give the user name at the API server")
    if not loaded.settings.pseudonym_key_file:
        raise CommandError(
            Exit.USAGE,
            "pseudonym_key_file is not set: the log has real names; name the key's file with"
            " --pseudonym-key-file if the service has one",
        )
    write_line(recorded_names(loaded.settings)(user))
