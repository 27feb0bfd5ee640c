"""Follower supervisor: starts the follower, receives its messages, and restarts it."""

import asyncio
import contextlib
import sys
from collections.abc import Callable
from typing import Final

import msgspec
import structlog

from gpuledger.server.follower.follower_process import FollowerInstructions, FollowerMessage
from ledger.tasks.backoff import Backoff

AGAIN_SECONDS: Final = 1.0
AGAIN_SECONDS_MAX: Final = 30.0
STEADY_SECONDS: Final = 60.0
"""A child that ran for longer is restarted after the short pause."""

END_SECONDS: Final = 3.0
"""Deadline for the end of a child after its standard input was closed."""

_log: Final = structlog.get_logger("gpuledger")


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
        )
        assert process.stdin is not None
        assert process.stdout is not None
        lost = False
        try:
            process.stdin.write(self._instructions)
            await process.stdin.drain()
            while line := await process.stdout.readline():
                lost = self._decode_line(line) or lost
        except (ConnectionError, ValueError) as error:
            _log.error("follower_unheard", reason=str(error))
        finally:
            await _end(process)
        return lost

    def _decode_line(self, line: bytes) -> bool:
        """Pass on a message of the follower; return True if the log is not intact."""
        try:
            message = msgspec.json.decode(line, type=FollowerMessage)
        except msgspec.MsgspecError:
            _log.error("follower_misunderstood", line=line[:200].decode(errors="replace"))
            return False
        self._on_message(message)
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
