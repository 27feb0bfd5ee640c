"""Schema survey: which record schema each replica of a shard reads.

The survey is a message without any guarantee. A replica that cannot be reached does not answer, and
neither does one of a version before the survey. So an answer with an older schema proves an older
replica, and a missing answer proves nothing.
"""

import asyncio
import contextlib
import re
import secrets
from typing import Final

import msgspec
from nats.aio.msg import Msg

from ledger.log import record_schema
from ledger.log.jetstream.nats_connection import NatsConnection
from ledger.log.jetstream.stream_configuration import StreamNames
from ledger.log.log_port import LogError

SURVEY_SECONDS: Final = 5.0
"""Time for answers, longer than a loaded replica needs."""

REPLICAS_MAX: Final = 256
"""Most answers that are kept."""

_NONCE: Final = re.compile(rb"[0-9a-f]{16}")


class ReplicaSchema(msgspec.Struct, frozen=True):
    """The newest schema that a replica reads and seals."""

    replica: str
    schema: int


_encoder: Final = msgspec.msgpack.Encoder()
_decoder: Final = msgspec.msgpack.Decoder(ReplicaSchema)


class SchemaAnnouncer:
    """Answers surveys with the schema of one replica."""

    def __init__(self, connection: NatsConnection, names: StreamNames, *, replica: str) -> None:
        """Prepare; `start` it."""
        self._connection, self._names = connection, names
        self._answer = _encoder.encode(ReplicaSchema(replica, record_schema.SCHEMA))

    async def start(self) -> None:
        """Answer from now on, until the connection is closed. Raises Unreachable."""
        await self._connection.subscribe(self._names.survey_subject, self._receive)

    async def _receive(self, message: Msg) -> None:
        if _NONCE.fullmatch(message.data):
            with contextlib.suppress(LogError):
                subject = self._names.survey_answers_subject(message.data.decode())
                await self._connection.publish(subject, self._answer)


async def survey(
    connection: NatsConnection, names: StreamNames, seconds: float = SURVEY_SECONDS
) -> list[ReplicaSchema]:
    """Ask all replicas, and return the answers that came in time. Raises Unreachable."""
    answers: dict[str, ReplicaSchema] = {}

    async def receive(message: Msg) -> None:
        with contextlib.suppress(msgspec.MsgspecError, UnicodeDecodeError):
            answer = _decoder.decode(message.data)
            if len(answers) < REPLICAS_MAX:
                answers[answer.replica] = answer

    nonce = secrets.token_hex(8)
    subject = names.survey_answers_subject(nonce)
    await connection.subscribe(subject, receive)
    try:
        await connection.publish(names.survey_subject, nonce.encode())
        await asyncio.sleep(seconds)
    finally:
        await connection.unsubscribe(subject)
    return sorted(answers.values(), key=lambda answer: answer.replica)
