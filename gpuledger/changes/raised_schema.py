"""Raised schema: the first record of the newest schema, after which older replicas stop.

It is refused while a replica answers that it reads only an older schema, and while the preferred
writer does not answer, because a version before the survey does not answer it. For the same reason
it is refused while there is no preferred writer: that may be the moment between two of them.
"""

from collections.abc import Sequence
from typing import Final

import msgspec

from gpuledger.cli.exit_codes import CommandError, Exit
from gpuledger.storage.open_log import OpenLog, open_log, writer_on
from ledger.log import record_schema
from ledger.log.peers import lease, schema_survey
from ledger.log.peers.schema_survey import ReplicaSchema
from ledger.runtime.settings.settings import Settings

_REMEDY: Final = "upgrade it first; nothing was changed"


class RaisedSchema(msgspec.Struct, frozen=True):
    """The schema before and after, the end of the log, and the replicas that answered."""

    before: int
    schema: int
    position: int
    replicas: list[ReplicaSchema]


async def raise_schema(settings: Settings) -> RaisedSchema:
    """Append the first record of the newest schema, unless the log has one.

    Raises CommandError if a replica is too old or none leads, and what opening a log raises.
    """
    async with open_log(settings) as opened:
        answered = await _replicas(opened)
        async with writer_on(settings, opened, serves=False) as writer:
            before = writer.state.schema
            await writer.raise_schema()
            state = writer.state
            return RaisedSchema(before, state.schema, state.position, answered)


async def _replicas(opened: OpenLog) -> list[ReplicaSchema]:
    """Return the replicas that answered. Raises CommandError if one may be too old."""
    if opened.alone:
        return []
    connection, names = opened.log.connection, opened.log.names
    owner = await lease.owner_of(connection, names)
    answered = await schema_survey.survey(connection, names)
    _must_read(answered, owner)
    return answered


def _must_read(answered: Sequence[ReplicaSchema], owner: str) -> None:
    for answer in answered:
        if answer.schema < record_schema.SCHEMA:
            raise CommandError(
                Exit.FAILED,
                f"replica {answer.replica} reads records up to schema {answer.schema}, and this"
                f" gpuledger would write {record_schema.SCHEMA}: {_REMEDY}",
            )
    if not owner:
        raise CommandError(
            Exit.FAILED,
            "no replica is the preferred writer now, so nothing shows that none is older: start the"
            " service, or try again in some seconds; nothing was changed",
        )
    if owner not in {answer.replica for answer in answered}:
        raise CommandError(
            Exit.FAILED,
            f"replica {owner}, the preferred writer, did not answer which schema it reads, as"
            f" replicas of older versions: {_REMEDY}",
        )
