"""Bounded read: an HTTP answer of several pieces is read whole, or not at all."""

import aiohttp


class AnswerTooLong(Exception):
    """An answer is longer than allowed."""


async def read_whole(content: aiohttp.StreamReader, bytes_max: int) -> bytes:
    """Return a whole answer. Raises AnswerTooLong, and aiohttp's errors when it breaks off.

    `StreamReader.read(n)` returns only the pieces that have arrived already.
    """
    body = bytearray()
    async for piece in content.iter_any():
        body += piece
        if len(body) > bytes_max:
            raise AnswerTooLong(f"more than {bytes_max} bytes")
    return bytes(body)
