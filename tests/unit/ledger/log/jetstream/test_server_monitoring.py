"""The monitoring answer of a server is read whole, or ignored."""

import asyncio
import contextlib
from collections.abc import AsyncIterator

import pytest
from aiohttp import web
from aiohttp.test_utils import RawTestServer

from ledger.log.jetstream import server_monitoring

DEADLINE_SECONDS = 20.0
SYNCING = b'{"server_id": "N", "config": {"sync_always": true}}'
NOT_WRITING = b'{"status": "unavailable", "error": "JetStream write error"}'


@contextlib.asynccontextmanager
async def answering(status: int, *pieces: bytes) -> AsyncIterator[str]:
    """Answer with a body whose pieces arrive one after the other."""

    async def answer(request: web.BaseRequest) -> web.StreamResponse:
        response = web.StreamResponse(status=status)
        await response.prepare(request)
        for piece in pieces:
            await response.write(piece)
            await asyncio.sleep(0.05)
        return response

    async with RawTestServer(answer) as server:
        yield str(server.make_url("")).rstrip("/")


async def test_answer_in_two_pieces_is_read_for_the_sync_setting() -> None:
    async with answering(200, SYNCING[:20], SYNCING[20:]) as url:
        assert await server_monitoring.sync_always(url, DEADLINE_SECONDS) is True


async def test_answer_in_two_pieces_is_read_for_the_write_error() -> None:
    async with answering(503, NOT_WRITING[:30], NOT_WRITING[30:]) as url:
        assert await server_monitoring.write_error(url, DEADLINE_SECONDS) == "JetStream write error"


async def test_answer_that_is_too_long_is_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_monitoring, "ANSWER_BYTES_MAX", len(SYNCING))
    async with answering(200, SYNCING, b" ") as url:
        assert await server_monitoring.sync_always(url, DEADLINE_SECONDS) is None
