"""Server monitoring: whether NATS servers are up, sync every write, and can write to their disks.

Only the monitoring port reports whether an acknowledged message is on the disk or in the page
cache; NATS clients cannot read that.
"""

import asyncio
from collections.abc import Sequence
from typing import Final

import aiohttp
import msgspec

from ledger.log.bounded_read import AnswerTooLong, read_whole

ANSWER_BYTES_MAX: Final = 1_048_576
"""Longest answer that is read."""

TROUBLE_SECONDS: Final = 1.0
"""How long a monitoring port may take to report whether its server can write."""


class _Config(msgspec.Struct, frozen=True):
    sync_always: bool = False


class _JetStream(msgspec.Struct, frozen=True):
    config: _Config | None = None


class _Health(msgspec.Struct, frozen=True):
    error: str = ""


_WRITE_ERROR: Final = "write error"
_healths: Final = msgspec.json.Decoder(_Health)
_jetstreams: Final = msgspec.json.Decoder(_JetStream)


async def healthy(url: str, deadline: float) -> bool:
    """Return whether the server at a monitoring address serves JetStream, within the deadline."""
    return await _get(f"{url}/healthz", deadline) is not None


async def write_error(url: str, deadline: float) -> str:
    """Return why the server at a monitoring address stores nothing more, empty while it does.

    Empty also without an answer, because the server is not up.
    """
    answer = await _get(f"{url}/healthz", deadline, statuses=(200, 503))
    try:
        error = _healths.decode(answer or b"{}").error
    except msgspec.MsgspecError:
        return ""
    return error if _WRITE_ERROR in error else ""


async def write_trouble(urls: Sequence[str], stream: str) -> str:
    """Return why most of the servers cannot write a stream, empty while most of them can."""
    errors = await asyncio.gather(*(write_error(url, TROUBLE_SECONDS) for url in urls))
    troubles = [text for text in errors if f"{stream}' " in text]
    if 2 * len(troubles) <= len(urls):
        return ""
    causes = ", ".join(dict.fromkeys(text.rpartition(": ")[2] for text in troubles))
    return (
        f"a NATS server cannot write to its disk ({causes}): make room there, and start the"
        " server again"
    )


async def sync_always(url: str, deadline: float) -> bool | None:
    """Return whether the server syncs every write before it acknowledges; None when unknown."""
    answer = await _get(f"{url}/jsz?config=true", deadline)
    if answer is None:
        return None
    try:
        config = _jetstreams.decode(answer).config
    except msgspec.MsgspecError:
        return None
    return config.sync_always if config is not None else None


async def _get(url: str, deadline: float, *, statuses: tuple[int, ...] = (200,)) -> bytes | None:
    try:
        timeout = aiohttp.ClientTimeout(total=deadline)
        async with (
            aiohttp.ClientSession(timeout=timeout) as session,
            session.get(url, allow_redirects=False) as response,
        ):
            if response.status not in statuses:
                return None
            return await read_whole(response.content, ANSWER_BYTES_MAX)
    except (TimeoutError, aiohttp.ClientError, OSError, ValueError, AnswerTooLong):
        return None
