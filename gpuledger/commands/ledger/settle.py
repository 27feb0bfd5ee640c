"""`gpuledger settle`: settles an object by hand, for ledgers without a watched cluster."""

from typing import Annotated

import msgspec
import typer

from gpuledger.cli.command_wrapper import command
from gpuledger.cli.output import Format, Output, show_one
from gpuledger.cli.tables.table_columns import Listing, flag, number, text
from ledger.runtime.settings.setting_sources import LoadedSettings
from webhook.settlement.operator_outcomes import ObjectOutcome

_SETTLED = Listing(
    (
        text("UID", "uid"),
        text("FATE", "fate"),
        flag("CHANGED", "changed"),
        number("POSITION", "position"),
    )
)


class SettleResult(msgspec.Struct, frozen=True):
    """The result of a settlement: the object, whether it changed, and the record's position."""

    uid: str
    fate: str
    changed: bool
    position: int


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
    from gpuledger.cli.exit_codes import CommandError, Exit
    from gpuledger.storage.open_log import ACTOR, open_log, submit, writer_on
    from gpuledger.storage.projection_catch_up import show_written
    from webhook.settlement.operator_outcomes import NothingToSettle, outcome_commands

    if not uid.strip():
        raise CommandError(
            Exit.USAGE, "UID is empty; `gpuledger holds` and `gpuledger holders` list uids"
        )
    async with open_log(loaded.settings) as opened:
        async with writer_on(loaded.settings, opened) as writer:
            try:
                commands = outcome_commands(writer.state, uid, fate, ACTOR)
            except NothingToSettle as error:
                raise CommandError(Exit.NOT_FOUND, str(error)) from error
            accepted = [await submit(writer, command) for command in commands]
        position = max(answer.position for answer in accepted)
        await show_written(loaded.settings, opened, position)
    changed = any(answer.changed for answer in accepted)
    show_one(SettleResult(uid, fate, changed, position), _SETTLED, output)
