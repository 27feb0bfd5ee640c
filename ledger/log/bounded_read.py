"""Pieces: the answer to an HTTP request comes in some, and is taken whole or not at all."""

import aiohttp


class AnswerTooLong(Exception):
    """An answer is longer than what is taken of anybody."""


async def read_whole(content: aiohttp.StreamReader, bytes_max: int) -> bytes:
    """Return all of an answer. Raises TooLong, and what aiohttp raises when it breaks off.

    `StreamReader.read(n)` is not that: it returns what happens to be there already.
    """
    body = bytearray()
    async for piece in content.iter_any():
        body += piece
        if len(body) > bytes_max:
            raise AnswerTooLong(f"more than {bytes_max} bytes")
    return bytes(body)
