"""Settle an object by the outcome that an operator gives to `gpuledger settle`."""

import msgspec

from gpuledger.cli.exit_codes import CommandError, Exit
from gpuledger.storage.open_log import ACTOR, open_log, submit, writer_on
from gpuledger.storage.projection_catch_up import show_written
from ledger.runtime.settings.settings import Settings
from webhook.settlement.operator_outcomes import NothingToSettle, ObjectOutcome, outcome_commands


class SettleResult(msgspec.Struct, frozen=True):
    """The result of a settlement: the object, whether it changed, and the record's position."""

    uid: str
    fate: str
    changed: bool
    position: int


async def settle(settings: Settings, fate: ObjectOutcome, uid: str) -> SettleResult:
    """Settle an object. Raises CommandError when there is nothing to settle, and what the log
    raises."""
    async with open_log(settings) as found:
        async with writer_on(settings, found) as writer:
            try:
                commands = outcome_commands(writer.state, uid, fate, ACTOR)
            except NothingToSettle as error:
                raise CommandError(Exit.NOT_FOUND, str(error)) from error
            accepted = [await submit(writer, command) for command in commands]
        position = max(one.position for one in accepted)
        await show_written(settings, found, position)
    return SettleResult(uid, fate, any(one.changed for one in accepted), position)
