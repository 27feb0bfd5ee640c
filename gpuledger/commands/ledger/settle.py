"""`gpuledger settle`: settles an object by hand, for ledgers without a watched cluster."""

from typing import Annotated

import typer

from gpuledger.cli.command_wrapper import command
from gpuledger.cli.output import Format, Output, flag, number, show_one, text
from ledger.runtime.settings.setting_sources import LoadedSettings
from webhook.settlement.operator_outcomes import ObjectOutcome

_SETTLED = (
    text("UID", "uid"),
    text("FATE", "fate"),
    flag("CHANGED", "changed"),
    number("POSITION", "position"),
)


def register(app: typer.Typer) -> None:
    """Add the command to the app."""
    command(
        app,
        "gpuledger settle persisted 6f1c9a52-8d0e-4a7a-9a53-2f7f3f0c1b44",
        "gpuledger settle deleted 6f1c9a52-8d0e-4a7a-9a53-2f7f3f0c1b44",
    )(settle)


async def settle(
    loaded: LoadedSettings,
    fate: Annotated[
        ObjectOutcome,
        typer.Argument(help="Outcome of the object.", metavar="persisted|absent|deleted"),
    ],
    uid: Annotated[str, typer.Argument(metavar="UID", help="The object's uid.")],
    output: Output = Format.TABLE,
) -> None:
    """Record the outcome of an object, by its uid.

    persisted commits its hold, absent releases its hold, deleted releases its whole charge.
    `gpuledger holds` and `gpuledger holders` list the uids. The service settles a watched cluster.
    There this command is for emergencies, and the next recount corrects errors.
    """
    from gpuledger.changes import settle_by_outcome
    from gpuledger.cli.exit_codes import CommandError, Exit

    if not uid.strip():
        raise CommandError(
            Exit.USAGE, "UID is empty; `gpuledger holds` and `gpuledger holders` list uids"
        )

    show_one(await settle_by_outcome.settle(loaded.settings, fate, uid), _SETTLED, output)
