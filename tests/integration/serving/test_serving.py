"""The server: binding, limits, and an end that answers what is in flight."""

import asyncio
import contextlib
import os
import signal
import socket
from typing import Any

import pytest
from support.servers.tls_server import DEADLINE_SECONDS, answer_scope, get, serving_at

from ledger.runtime.http import connection_deadlines, http_server


async def reply_to(address: str, sent: bytes) -> bytes:
    """Send bytes on a bare connection; return everything until the server closes it."""
    host, _, port = address.rpartition(":")
    async with asyncio.timeout(DEADLINE_SECONDS):
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(sent)
        try:
            return await reader.read()
        except ConnectionResetError:
            return b""
        finally:
            writer.close()


def test_port_zero_takes_a_free_port_and_returns_it() -> None:
    listener = http_server.bind("127.0.0.1:0")
    host, _, port = listener.address.rpartition(":")
    listener.close()
    assert host == "127.0.0.1"
    assert int(port) > 0


def test_an_ipv6_address_is_written_with_brackets() -> None:
    listener = http_server.bind("[::1]:0")
    listener.close()
    assert listener.address.startswith("[::1]:")


def test_a_taken_port_is_a_clear_error() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(
            http_server.ListenError, match=f"listen = {address}: the port is in use"
        ):
            http_server.bind(address)


@pytest.mark.parametrize("host", ["192.0.2.1", "no-such-host.invalid"])
def test_a_host_that_is_not_ours_is_a_clear_error(host: str) -> None:
    with pytest.raises(http_server.ListenError, match="is not an address of this machine"):
        http_server.bind(f"{host}:0")


async def test_a_plain_connection_is_served_without_certificates() -> None:
    async with serving_at(answer_scope) as address:
        status, body = await get(f"http://{address}/healthz")
    assert (status, body["scheme"], body["extensions"]) == (200, "http", None)


async def test_a_header_does_not_change_who_the_peer_is() -> None:
    async with serving_at(answer_scope) as address:
        forged: dict[str, Any] = {
            "X-Forwarded-For": "203.0.113.9",
            "X-Forwarded-Proto": "https",
        }
        _, body = await get(f"http://{address}/", **forged)
    assert (body["client"][0], body["scheme"]) == ("127.0.0.1", "http")


async def test_a_request_in_flight_is_answered_before_the_end() -> None:
    entered, leave = asyncio.Event(), asyncio.Event()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        entered.set()
        await leave.wait()
        await answer_scope(scope, receive, send)

    listener, stop = http_server.bind("127.0.0.1:0"), asyncio.Event()
    served = asyncio.create_task(http_server.serve(app, listener, stop))
    asked = asyncio.create_task(get(f"http://{listener.address}/"))
    async with asyncio.timeout(DEADLINE_SECONDS):
        await entered.wait()
        stop.set()
        await asyncio.sleep(0)
        leave.set()
        assert (await asked)[0] == 200
        await served


async def test_a_request_that_never_ends_does_not_hold_up_the_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(http_server, "DRAIN_SECONDS", 0.2)
    entered, cancelled = asyncio.Event(), asyncio.Event()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        entered.set()
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()

    async with serving_at(app) as address:
        asked = asyncio.create_task(reply_to(address, b"GET / HTTP/1.1\r\nhost: a\r\n\r\n"))
        await entered.wait()
    await asked
    assert cancelled.is_set()


async def test_the_port_is_free_again_after_the_end() -> None:
    async with serving_at(answer_scope) as address:
        await get(f"http://{address}/")
    http_server.bind(address).close()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_signal_asks_for_the_end(number: signal.Signals) -> None:
    stop = asyncio.Event()
    with http_server.stopping_on_signals(stop):
        os.kill(os.getpid(), number)
        async with asyncio.timeout(DEADLINE_SECONDS):
            await stop.wait()


async def test_an_ended_server_task_gives_its_socket_back() -> None:
    listener, started = http_server.bind("127.0.0.1:0"), asyncio.Event()
    served = asyncio.create_task(
        http_server.serve(answer_scope, listener, asyncio.Event(), started=started.set)
    )
    async with asyncio.timeout(DEADLINE_SECONDS):
        await started.wait()
        served.cancel()
        with pytest.raises(asyncio.CancelledError):
            await served
    http_server.bind(listener.address).close()


async def test_a_head_that_is_too_large_is_refused() -> None:
    async with serving_at(answer_scope) as address:
        endless = b"GET / HTTP/1.1\r\nx: " + b"a" * (connection_deadlines.HEAD_BYTES_MAX + 1)
        assert (await reply_to(address, endless)).startswith(b"HTTP/1.1 431 ")


async def test_a_head_just_below_the_limit_is_served() -> None:
    async with serving_at(answer_scope) as address:
        start = b"GET / HTTP/1.1\r\nhost: a\r\nconnection: close\r\nx: "
        padding = b"a" * (connection_deadlines.HEAD_BYTES_MAX - len(start) - 4)
        assert (await reply_to(address, start + padding + b"\r\n\r\n")).startswith(b"HTTP/1.1 200")


@pytest.mark.parametrize("sent", [b"", b"GET / HTT"])
async def test_a_head_that_never_comes_is_not_waited_for(
    monkeypatch: pytest.MonkeyPatch, sent: bytes
) -> None:
    monkeypatch.setattr(connection_deadlines, "HEAD_SECONDS", 0.1)
    async with serving_at(answer_scope) as address:
        assert await reply_to(address, sent) == b""


async def test_a_second_head_that_never_ends_is_not_waited_for_either(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(connection_deadlines, "HEAD_SECONDS", 0.1)
    async with serving_at(answer_scope) as address:
        reply = await reply_to(address, b"GET / HTTP/1.1\r\nhost: a\r\n\r\nGET / HTT")
    assert reply.startswith(b"HTTP/1.1 200")


async def test_a_body_that_is_slow_is_left_to_the_application(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(connection_deadlines, "HEAD_SECONDS", 0.05)

    async def app(scope: Any, receive: Any, send: Any) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(0.2):
                await receive()
                await receive()
        await answer_scope(scope, receive, send)

    async with serving_at(app) as address:
        sent = b"POST / HTTP/1.1\r\nhost: a\r\nconnection: close\r\ncontent-length: 2\r\n\r\na"
        assert (await reply_to(address, sent)).startswith(b"HTTP/1.1 200")


async def test_what_is_not_http_is_answered_400() -> None:
    async with serving_at(answer_scope) as address:
        assert (await reply_to(address, b"\x16\x03\x01 hello\r\n\r\n")).startswith(b"HTTP/1.1 400")
