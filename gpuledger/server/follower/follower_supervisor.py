"""Follower supervisor: starts the follower, receives its messages, and restarts it.

It also asks the follower about cards.
"""

import asyncio
import contextlib
import itertools
import sys
from collections.abc import Callable
from typing import Final

import msgspec
import structlog

from gpuledger.manifest_fit.manifest_pods import PodCardRequest
from gpuledger.server.follower.card_answers import CardAnswer, CardQuestion
from gpuledger.server.follower.follower_process import (
    QUESTION_BYTES_MAX,
    FollowerInstructions,
    FollowerMessage,
)
from gpuledger.server.follower.unsent_offers import UnsentOffers
from ledger.tasks.backoff import Backoff

AGAIN_SECONDS: Final = 1.0
AGAIN_SECONDS_MAX: Final = 30.0
STEADY_SECONDS: Final = 60.0
"""A child that ran for longer is restarted after the short pause."""

END_SECONDS: Final = 3.0
"""Deadline for the end of a child after its standard input was closed."""

ANSWER_BYTES_MAX: Final = 16 * 1024 * 1024
"""Longest line of the follower: some hundred nodes with all their cards."""

_log: Final = structlog.get_logger("gpuledger")


class FollowerUnavailable(Exception):
    """The follower does not answer now; the message names the reason and the remedy."""


class FollowerSupervisor:
    """Keeps one follower process running; `restarts` counts its restarts.

    `on_message` is called with every message of the process.
    """

    def __init__(
        self, instructions: FollowerInstructions, on_message: Callable[[FollowerMessage], None]
    ) -> None:
        self.restarts = 0
        self._instructions = msgspec.json.encode(instructions) + b"\n"
        self._on_message = on_message
        self._process: asyncio.subprocess.Process | None = None
        self._numbers = itertools.count(1)
        self._asked: dict[int, asyncio.Future[CardAnswer]] = {}

    async def ask(
        self,
        requests: list[PodCardRequest],
        *,
        within: str,
        nodes_max: int,
        offers: UnsentOffers | None,
        position: int,
        seconds: float,
    ) -> CardAnswer:
        """Ask where pods fit; see `CardQuestion`. The cards of `offers` are left out.

        Raises FollowerUnavailable and TimeoutError.
        """
        number = next(self._numbers)
        line = msgspec.json.encode(
            CardQuestion(number, requests, within, nodes_max, position, seconds)
        )
        if len(line) >= QUESTION_BYTES_MAX:
            raise FollowerUnavailable(
                f"the requests of the manifest have more than {QUESTION_BYTES_MAX} bytes; give an"
                " object with fewer templates"
            )
        process = self._process
        if process is None or process.stdin is None or process.stdin.is_closing():
            raise FollowerUnavailable("the follower of this replica is starting; try again")
        answer: asyncio.Future[CardAnswer] = asyncio.get_running_loop().create_future()
        self._asked[number] = answer
        try:
            for message in offers.messages(process) if offers is not None else ():
                process.stdin.write(msgspec.json.encode(message) + b"\n")
            process.stdin.write(line + b"\n")
            async with asyncio.timeout(seconds):
                answered = await answer
        finally:
            del self._asked[number]
        if answered.problem:
            raise FollowerUnavailable(answered.problem)
        return answered

    async def run(self) -> None:
        """Run until cancelled, or until the follower reports that the log is not intact."""
        backoff = Backoff(AGAIN_SECONDS, AGAIN_SECONDS_MAX)
        clock = asyncio.get_running_loop().time
        while True:
            began = clock()
            if await self._run_once():
                return
            if clock() - began > STEADY_SECONDS:
                backoff.reset()
            self.restarts += 1
            _log.error("follower_ended", restarts=self.restarts, again_in_seconds=backoff.seconds)
            await backoff.wait()

    async def _run_once(self) -> bool:
        """Run one process to its end; return True if it ended because the log is not intact."""
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "gpuledger.server.follower.follower_process"),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            limit=ANSWER_BYTES_MAX,
        )
        assert process.stdin is not None
        assert process.stdout is not None
        lost = False
        try:
            process.stdin.write(self._instructions)
            await process.stdin.drain()
            self._process = process
            while line := await process.stdout.readline():
                lost = self._decode_line(line) or lost
        except (ConnectionError, ValueError) as error:
            _log.error("follower_unheard", reason=str(error))
        finally:
            self._process = None
            self._refuse_asked()
            await _end(process)
        return lost

    def _refuse_asked(self) -> None:
        for answer in self._asked.values():
            if not answer.done():
                answer.set_exception(FollowerUnavailable("the follower has ended; try again"))

    def _decode_line(self, line: bytes) -> bool:
        """Pass on a message of the follower; return True if the log is not intact."""
        try:
            message = msgspec.json.decode(line, type=FollowerMessage)
        except msgspec.MsgspecError:
            _log.error("follower_misunderstood", line=line[:200].decode(errors="replace"))
            return False
        if message.answer is None:
            self._on_message(message)
        elif (asked := self._asked.get(message.answer.number)) is not None and not asked.done():
            asked.set_result(message.answer)
        return bool(message.lost)


async def _end(process: asyncio.subprocess.Process) -> None:
    """End a child by closing its standard input, and kill it after a deadline."""
    assert process.stdin is not None
    process.stdin.close()
    try:
        await asyncio.wait_for(process.wait(), END_SECONDS)
    except TimeoutError:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()
