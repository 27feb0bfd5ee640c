"""What a NATS server says about itself over HTTP: whether it is up, and whether it syncs.

Only the monitoring port tells whether an acknowledged message is on the disk or in the page
cache; no client can see it.
"""

from typing import Final

import aiohttp
import msgspec

ANSWER_BYTES_MAX: Final = 1_048_576
"""Longest answer that is read."""


class _Config(msgspec.Struct, frozen=True):
    sync_always: bool = False


class _JetStream(msgspec.Struct, frozen=True):
    config: _Config | None = None


_jetstreams: Final = msgspec.json.Decoder(_JetStream)


async def healthy(url: str, deadline: float) -> bool:
    """Return whether the server at a monitoring address serves JetStream, within the deadline."""
    return await _get(f"{url}/healthz", deadline) is not None


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


async def _get(url: str, deadline: float) -> bytes | None:
    try:
        timeout = aiohttp.ClientTimeout(total=deadline)
        async with (
            aiohttp.ClientSession(timeout=timeout) as session,
            session.get(url, allow_redirects=False) as response,
        ):
            if response.status != 200:
                return None
            return await response.content.read(ANSWER_BYTES_MAX)
    except (TimeoutError, aiohttp.ClientError, OSError, ValueError):
        return None
