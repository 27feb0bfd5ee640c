"""An endpoint behaves in the same way on the direct path and behind the application.

Each test runs on both. `test_answers_have_the_same_bytes` compares the two byte by byte.
"""

import asyncio
import contextlib
import logging
import random
from collections.abc import AsyncIterator

import pytest
import structlog
from support.servers.both_ways import BODY_MAX, PATH, WAYS, Handler, client_of, post, serving_way
from support.servers.tls_server import DEADLINE_SECONDS

from ledger.runtime.http import acceptor, connection_deadlines, http_server, json_endpoint
from ledger.runtime.http.acceptor import AcceptorSettings

SEEDS = 40
"""Connections with several requests that are compared."""

LAST = b"GET /nothing HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n"
"""A request after which the server ends the connection."""

HALF = post(b"x" * 1_000)[:-500]
"""A request of which half of the body is missing."""

PIECES = (
    post(b"x"),
    post(b"y" * 5_000),
    post(b"slow"),
    post(b"bad"),
    post(b"a", path=f"{PATH}?timeout=10s"),
    b"GET %s HTTP/1.1\r\nhost: localhost\r\n\r\n" % PATH.encode(),
    b"HEAD %s HTTP/1.1\r\nhost: localhost\r\n\r\n" % PATH.encode(),
    post(b"{}", path="/nothing"),
    post(b"{}", path="/admission/%76alidate"),
    post(b"{}", path=f"http://localhost{PATH}"),
    post(b"{}").replace(b"POST", b"PUT", 1),
    post(b"{}").replace(b"POST", b"GET", 1),
    post(b"{}", kind=b"text/plain"),
    post(b"{}", kind=b"application/json; charset=utf-8"),
    post(b"{}", kind=b"APPLICATION/JSON"),
    post(b"{}", b"content-encoding: gzip"),
    post(b""),
    post(b"{}", b"expect: 100-continue"),
    post(b"{}", b"content-type: text/plain"),
    b"POST %s HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
    b"transfer-encoding: chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n" % PATH.encode(),
)
"""Requests after which a connection goes on."""

ENDING = (
    post(b"z", b"connection: close"),
    post(b"x" * (BODY_MAX + 1)),
    post(b"{}", b"connection: upgrade", b"upgrade: websocket"),
    post(b"{}").replace(b"HTTP/1.1", b"HTTP/1.0", 1),
    post(b"{}", b"connection: keep-alive").replace(b"HTTP/1.1", b"HTTP/1.0", 1),
    post(b"{}").replace(b"HTTP/1.1", b"HTTP/1.7", 1),
    post(b"{}", b"content-length: 7"),
    post(b"{}", b"transfer-encoding: chunked"),
    post(b"{}").replace(b"content-length: 2", b"content-length: -2"),
    post(b"{}").replace(b"content-length: 2", b"content-length: 99999999999999999999"),
    post(b"{}").replace(b"content-type", b"content type"),
    post(b"{}", b"x: " + b"a" * connection_deadlines.HEAD_BYTES_MAX),
    post(b"{}", *[b"x: y"] * 20_000),
    b"\x16\x03\x01 hello\r\n\r\n",
)
"""Requests after which the server may end the connection."""


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setattr(acceptor, "TURN_SECONDS", 0.02)
    monkeypatch.setattr(connection_deadlines, "IDLE_SECONDS", 1.0)
    caplog.set_level(logging.CRITICAL, "uvicorn.error")


async def reply_to(address: str, parts: list[bytes]) -> bytes:
    """Return everything that the server sends for these parts of a connection."""
    async with client_of(address) as client:
        for part in parts:
            client.send(part)
            await asyncio.sleep(0.001 if len(parts) > 1 else 0)
        return await client.rest()


@contextlib.asynccontextmanager
async def serving_both() -> AsyncIterator[tuple[str, str]]:
    """Serve on the direct path and behind the application; yields both addresses."""
    handler = Handler()
    handler.let.set()
    async with (
        serving_way("direct", handler) as (direct, _),
        serving_way("application", handler) as (application, _),
    ):
        yield direct, application


async def test_answers_have_the_same_bytes() -> None:
    async with serving_both() as addresses:
        for request in (*PIECES, *ENDING):
            direct, application = [
                await reply_to(address, [request + LAST]) for address in addresses
            ]
            assert direct == application, request[:200]
            assert direct.startswith(b"HTTP/1.1 ")


async def test_pipelined_requests_in_any_pieces_are_answered_alike() -> None:
    async with serving_both() as addresses:
        for seed in range(SEEDS):
            chance = random.Random(seed)
            requests = chance.choices(PIECES, k=chance.randint(1, 5))
            whole = b"".join(requests) + LAST
            cuts = sorted(chance.choices(range(len(whole)), k=chance.randint(0, 6)))
            parts = [whole[a:b] for a, b in zip([0, *cuts], [*cuts, len(whole)], strict=True)]
            direct, application = [await reply_to(address, parts) for address in addresses]
            assert direct == application, seed
            statuses = direct.count(b"HTTP/1.1 ") - direct.count(b"HTTP/1.1 100 ")
            assert statuses == len(requests) + 1, seed


@pytest.mark.parametrize("way", WAYS)
async def test_plain_request_reaches_the_application_on_one_way(way: str) -> None:
    handler = Handler()
    async with serving_way(way, handler) as (address, app), client_of(address) as client:
        for number in range(3):
            client.send(post(b"%d" % number))
            assert (await client.answer())[2] == b'"%d"' % number
        client.send(HALF)
        await asyncio.sleep(0.05)
        client.send(b"x" * 500)
        assert (await client.answer())[0] == 200
    assert app.count == (0 if way == "direct" else 4)
    assert len(handler.observed) == 4
    with_task = [isinstance(task, asyncio.Task) for task in handler.tasks]
    assert with_task == [way == "application"] * 4


@pytest.mark.parametrize("way", WAYS)
async def test_pipelined_requests_are_answered_in_order(way: str) -> None:
    handler = Handler()
    async with serving_way(way, handler) as (address, _), client_of(address) as client:
        bodies = [b"slow 0", *(b"%d" % number for number in range(1, 20))]
        client.send(b"".join(map(post, bodies)))
        async with asyncio.timeout(DEADLINE_SECONDS):
            await handler.entered.wait()
        await asyncio.sleep(0.05)
        assert handler.answered == []
        handler.let.set()
        assert [(await client.answer())[2] for _ in bodies] == [b'"%s"' % body for body in bodies]
    assert handler.answered == bodies


@pytest.mark.parametrize("way", WAYS)
async def test_slow_body_is_refused_at_the_deadline(way: str) -> None:
    handler = Handler(seconds=0.2)
    async with serving_way(way, handler) as (address, _), client_of(address) as client:
        client.send(HALF)
        status, head, body = await client.answer()
        assert (status, b"connection: close" in head) == (408, True)
        assert b"did not arrive in time" in body
        client.send(b"x" * 500 + post(b"late"))
        assert await client.rest() == b""
    assert handler.answered == []
    assert handler.budget.bytes == 0
    assert len(handler.observed) == 1


@pytest.mark.parametrize("way", WAYS)
async def test_incomplete_body_gives_its_room_to_others(
    way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(json_endpoint, "ARRIVAL_SECONDS", 0.1)
    handler = Handler(seconds=2 * DEADLINE_SECONDS, budget=1_200)
    async with (
        serving_way(way, handler) as (address, _),
        client_of(address) as slow,
        client_of(address) as client,
    ):
        slow.send(HALF)
        await asyncio.sleep(0.05)
        client.send(post(b"y" * 1_000))
        assert (await client.answer())[0] == 200
        assert (await slow.answer())[0] == 503
        assert await slow.rest() == b""
    assert handler.budget.bytes == 0


@pytest.mark.parametrize("way", WAYS)
async def test_body_without_room_waits_for_it(way: str) -> None:
    handler = Handler(budget=1_200)
    async with (
        serving_way(way, handler) as (address, _),
        client_of(address) as first,
        client_of(address) as second,
    ):
        first.send(post(b"slow" * 250))
        async with asyncio.timeout(DEADLINE_SECONDS):
            await handler.entered.wait()
        second.send(post(b"y" * 1_000))
        await asyncio.sleep(0.05)
        assert handler.answered == []
        assert handler.budget.bytes == 1_000
        handler.let.set()
        assert (await second.answer())[0] == 200
        assert (await first.answer())[0] == 200
    assert handler.budget.bytes == 0


@pytest.mark.parametrize("way", WAYS)
async def test_body_that_waits_for_room_keeps_what_it_has(way: str) -> None:
    handler = Handler(budget=2_000)
    loop = asyncio.get_running_loop()
    async with (
        serving_way(way, handler) as (address, _),
        client_of(address) as first,
        client_of(address) as second,
    ):
        request = post(b"x" * 1_500)
        for number, client in enumerate((first, second), 1):
            client.send(request[:-600])
            async with asyncio.timeout(DEADLINE_SECONDS):
                while handler.budget.bytes < number * 900:  # noqa: ASYNC110 (there is no signal)
                    await asyncio.sleep(0.01)
        arrived = loop.time()
        await asyncio.sleep(0.1)
        second.send(request[-600:-300])
        await asyncio.sleep(0.1)
        assert handler.budget.bytes == 1_800
        first.writer.transport.abort()
        second.send(request[-300:])
        assert (await second.answer())[0] == 200
    assert handler.budget.bytes == 0
    assert handler.deadlines[-1] <= arrived + handler.endpoint.limits.seconds
    assert max(handler.observed) > 0.1


@pytest.mark.parametrize("way", WAYS)
async def test_cut_body_releases_its_room(way: str) -> None:
    handler = Handler()
    async with serving_way(way, handler) as (address, _):
        async with client_of(address) as client:
            client.send(HALF)
            async with asyncio.timeout(DEADLINE_SECONDS):
                while not handler.budget.bytes:  # noqa: ASYNC110 (there is no signal)
                    await asyncio.sleep(0.01)
        async with asyncio.timeout(DEADLINE_SECONDS):
            while handler.budget.bytes:  # noqa: ASYNC110 (there is no signal)
                await asyncio.sleep(0.01)
    assert handler.answered == []
    assert len(handler.observed) == 1


@pytest.mark.parametrize("way", WAYS)
async def test_request_is_decided_when_its_client_is_gone(way: str) -> None:
    handler = Handler()
    async with serving_way(way, handler) as (address, _):
        async with client_of(address) as client:
            client.send(post(b"slow"))
            async with asyncio.timeout(DEADLINE_SECONDS):
                await handler.entered.wait()
        await asyncio.sleep(0.05)
        handler.let.set()
    assert handler.answered == [b"slow"]
    assert handler.budget.bytes == 0


@pytest.mark.parametrize("way", WAYS)
async def test_request_in_flight_is_answered_before_the_end(way: str) -> None:
    handler = Handler()
    async with serving_way(way, handler) as (address, _):
        host, _, port = address.rpartition(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(post(b"slow"))
        async with asyncio.timeout(DEADLINE_SECONDS):
            await handler.entered.wait()
        asyncio.get_running_loop().call_later(0.2, handler.let.set)
    answer = await reader.read()
    assert b"connection: close" in answer
    assert answer.endswith(b'"slow"')
    writer.close()


@pytest.mark.parametrize("way", WAYS)
async def test_body_that_arrives_at_the_end_closes_its_connection(way: str) -> None:
    handler = Handler(budget=1_200)
    loop, request = asyncio.get_running_loop(), post(b"y" * 1_000)
    async with serving_way(way, handler) as (address, _):
        host, _, port = address.rpartition(":")
        _, first = await asyncio.open_connection(host, int(port))
        reader, second = await asyncio.open_connection(host, int(port))
        first.write(post(b"slow" * 250))
        second.write(request[:-900])
        async with asyncio.timeout(DEADLINE_SECONDS):
            while handler.budget.bytes < 1_100:  # noqa: ASYNC110 (there is no signal)
                await asyncio.sleep(0.01)
        loop.call_later(0.2, second.write, request[-900:])
        loop.call_later(0.4, handler.let.set)
    assert b"connection: close" in await reader.read()
    first.close()
    second.close()


@pytest.mark.parametrize("way", WAYS)
async def test_request_that_never_ends_is_cancelled_at_the_end(
    way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_server, "DRAIN_SECONDS", 0.2)
    handler = Handler()
    async with serving_way(way, handler) as (address, _):
        host, _, port = address.rpartition(":")
        _, writer = await asyncio.open_connection(host, int(port))
        writer.write(post(b"slow"))
        async with asyncio.timeout(DEADLINE_SECONDS):
            await handler.entered.wait()
    assert handler.cancelled.is_set()
    writer.close()


@pytest.mark.parametrize("way", WAYS)
async def test_defect_is_logged_and_answered_500(
    way: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.ERROR, "uvicorn.error")
    handler = Handler()
    with structlog.testing.capture_logs() as logged:
        async with serving_way(way, handler) as (address, _), client_of(address) as client:
            client.send(post(b"defect"))
            status, head, body = await client.answer()
            assert (status, body) == (500, b"Internal Server Error")
            assert (b"connection: close" in head) == (way == "direct")
            assert await client.rest() == b""
    errors = [record.exc_info[1] for record in caplog.records if record.exc_info]
    errors += [entry["exc_info"] for entry in logged if entry["event"] == "request_met_a_defect"]
    assert [str(error) for error in errors] == ["the handler met a defect"]


@pytest.mark.parametrize("way", WAYS)
async def test_client_that_reads_no_answer_is_cut(
    way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection_deadlines, "UNREAD_SECONDS", 0.3)
    handler = Handler()
    async with serving_way(way, handler) as (address, _):
        host, _, port = address.rpartition(":")
        reader, writer = await asyncio.open_connection(host, int(port), limit=1)
        request = post(b"x" * 90_000)
        async with asyncio.timeout(DEADLINE_SECONDS):
            with contextlib.suppress(ConnectionError):
                while not reader.at_eof():
                    writer.write(request)
                    await writer.drain()
    assert handler.budget.bytes == 0
    assert len(handler.answered) < 300, "the server answers into a buffer that nobody empties"


@pytest.mark.parametrize("way", WAYS)
async def test_busy_connection_keeps_its_place_in_a_full_pool(way: str) -> None:
    handler = Handler()
    full = AcceptorSettings(others_max=1)
    async with (
        serving_way(way, handler, accepting=full) as (address, _),
        client_of(address) as client,
    ):
        client.send(post(b"slow"))
        async with asyncio.timeout(DEADLINE_SECONDS):
            await handler.entered.wait()
        async with client_of(address) as newcomer:
            assert await newcomer.rest() == b""
        handler.let.set()
        assert (await client.answer())[0] == 200
        client.send(HALF)
        await asyncio.sleep(0.05)
        async with client_of(address) as newcomer:
            assert await client.rest() == b""
            newcomer.send(post(b"x"))
            assert (await newcomer.answer())[0] == 200
    assert handler.budget.bytes == 0


@pytest.mark.parametrize("way", WAYS)
async def test_connection_is_idle_between_two_requests_only(
    way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("IDLE_SECONDS", "FIRST_SECONDS", "HEAD_SECONDS"):
        monkeypatch.setattr(connection_deadlines, name, 0.3)
    handler = Handler()
    async with serving_way(way, handler) as (address, _), client_of(address) as client:
        client.send(post(b"slow"))
        await asyncio.sleep(0.5)
        handler.let.set()
        assert (await client.answer())[0] == 200
        assert await client.rest() == b""
