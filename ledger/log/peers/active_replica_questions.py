"""Questions to the active replica of a cluster, over NATS.

Every replica subscribes to one subject of its cluster. The active replica answers, and the others
are silent. A question changes nothing, so an answer of a replica that has just lost its lease does
no harm.
"""

import asyncio
import contextlib
from collections.abc import Callable
from typing import Final

from nats.aio.msg import Msg

from ledger.log.jetstream.nats_connection import NatsConnection
from ledger.log.jetstream.stream_configuration import StreamNames
from ledger.log.log_port import LogError, Unreachable

ANSWER_SECONDS: Final = 2.0
"""Deadline of an answer."""

QUESTION_BYTES_MAX: Final = 4_096
"""Longest question."""

ASKED_MAX: Final = 64
"""Most questions in progress."""


class ActiveReplicaQuestions:
    """Asks the active replica of a cluster, and answers if this replica is the active one."""

    def __init__(self, cluster: str) -> None:
        """Prepare; questions are answered after `start`."""
        self._cluster = cluster
        self._answer: Callable[[bytes], bytes | None] = lambda _: None
        self._connection: NatsConnection | None = None
        self._subject = ""
        self._asked = 0

    def answer_with(self, answer: Callable[[bytes], bytes | None]) -> None:
        """Answer with a function, which returns None where this replica is not the active one."""
        self._answer = answer

    async def start(self, connection: NatsConnection, names: StreamNames) -> None:
        """Subscribe until the connection is closed. Raises Unreachable."""
        self._subject = names.questions_subject(self._cluster)
        await connection.subscribe(self._subject, self._receive)
        self._connection = connection

    async def ask(self, question: bytes) -> bytes:
        """Return the answer of the active replica, which may be this one.

        Raises Unreachable, and TimeoutError if no replica answered in time.
        """
        own = self._answer(question)
        if own is not None:
            return own
        if self._connection is None:
            raise Unreachable("the log of this replica is not open yet")
        if self._asked >= ASKED_MAX:
            raise Unreachable("too many questions to the active replica are in progress")
        self._asked += 1
        try:
            # The connection's own deadline does not cover its reconnection.
            async with asyncio.timeout(ANSWER_SECONDS):
                return await self._connection.request(
                    self._subject, question, deadline=ANSWER_SECONDS
                )
        finally:
            self._asked -= 1

    async def _receive(self, message: Msg) -> None:
        if not message.reply or len(message.data) > QUESTION_BYTES_MAX:
            return
        answer = self._answer(message.data)
        if answer is not None and self._connection is not None:
            with contextlib.suppress(LogError):
                await self._connection.publish(message.reply, answer)
