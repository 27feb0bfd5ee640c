"""Connections that are held open: which clients keep their place, how long, and which lose it."""

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from cryptography.x509.oid import NameOID
from support.servers.tls_server import (
    DEADLINE_SECONDS,
    ClientAuthority,
    answer_scope,
    get,
    serving_at,
    visitor,
)

from ledger.runtime.http import acceptor, connection_deadlines
from ledger.runtime.http.acceptor import HANDSHAKES, OTHERS, Acceptor, AcceptorSettings
from ledger.runtime.tls import certificate_reload, server_certificate

Find = Callable[[], server_certificate.CertificateFiles]

GET = b"GET / HTTP/1.1\r\nhost: a\r\n\r\n"
POST = b"POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 10\r\n\r\n"


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(acceptor, "TURN_SECONDS", 0.02)


class Peer:
    """A client on a bare connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    async def ended(self) -> bool:
        """Wait until the server ends the connection."""
        async with asyncio.timeout(DEADLINE_SECONDS):
            with contextlib.suppress(ConnectionError):
                while await self.reader.read(65_536):
                    pass
        return True

    async def answer(self) -> bytes:
        """Return the status line of the next answer, of which all was read."""
        async with asyncio.timeout(DEADLINE_SECONDS):
            head = await self.reader.readuntil(b"\r\n\r\n")
            if b"chunked" in head:
                await self.reader.readuntil(b"0\r\n\r\n")
        return head.partition(b"\r\n")[0]


@contextlib.asynccontextmanager
async def peer_of(
    address: str, *, local: str = "127.0.0.1", context: ssl.SSLContext | None = None
) -> AsyncIterator[Peer]:
    host, _, port = address.rpartition(":")
    reader, writer = await asyncio.open_connection(
        host, int(port), local_addr=(local, 0), ssl=context
    )
    try:
        yield Peer(reader, writer)
    finally:
        writer.transport.abort()


async def count_is(acceptor: Acceptor, pool: str, count: int) -> None:
    async with asyncio.timeout(DEADLINE_SECONDS):
        while acceptor.count(pool) != count:  # noqa: ASYNC110 (there is no signal)
            await asyncio.sleep(0.01)


class Blocking:
    """An application that answers `/` at once and `/slow` when it is let."""

    def __init__(self) -> None:
        self.entered, self.let = asyncio.Event(), asyncio.Event()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["path"] == "/slow":
            self.entered.set()
            await self.let.wait()
        await answer_scope(scope, receive, send)


async def test_an_anonymous_client_has_to_send_something_soon(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(connection_deadlines, "FIRST_SECONDS", 0.1)
    async with serving_at(answer_scope) as address, peer_of(address) as peer:
        assert await peer.ended()


async def test_a_handshake_has_to_end_soon(own: Find, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(acceptor._OF_TLS, "ssl_handshake_timeout", 0.2)
    async with (
        serving_at(answer_scope, certificate_reload.Tls(own)) as address,
        peer_of(address) as peer,
    ):
        assert await peer.ended()


async def test_stray_bytes_between_requests_do_not_hold_a_connection(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(connection_deadlines, "HEAD_SECONDS", 0.2)
    async with serving_at(answer_scope) as address, peer_of(address) as peer:
        peer.writer.write(GET)
        assert await peer.answer() == b"HTTP/1.1 200 OK"
        straying = asyncio.create_task(stray(peer.writer, b"\r\n"))
        assert await peer.ended()
        straying.cancel()


async def stray(writer: asyncio.StreamWriter, sent: bytes) -> None:
    while True:
        writer.write(sent)
        await asyncio.sleep(0.05)


async def test_a_body_that_was_answered_early_does_not_hold_a_connection(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(connection_deadlines, "REST_SECONDS", 0.2)
    async with serving_at(answer_scope) as address, peer_of(address) as peer:
        peer.writer.write(POST)
        assert await peer.answer() == b"HTTP/1.1 200 OK"
        assert await peer.ended()


async def test_an_idle_connection_that_was_used_is_closed_at_its_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(connection_deadlines, "IDLE_SECONDS", 0.2)
    async with serving_at(answer_scope) as address, peer_of(address) as peer:
        peer.writer.write(GET)
        assert await peer.answer() == b"HTTP/1.1 200 OK"
        assert await peer.ended()


async def test_a_connection_is_idle_for_longer_than_the_api_server_keeps_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert connection_deadlines.IDLE_SECONDS > 90
    monkeypatch.setattr(connection_deadlines, "FIRST_SECONDS", 0.05)
    monkeypatch.setattr(connection_deadlines, "HEAD_SECONDS", 0.05)
    async with serving_at(answer_scope) as address, peer_of(address) as peer:
        peer.writer.write(GET)
        assert await peer.answer() == b"HTTP/1.1 200 OK"
        await asyncio.sleep(0.3)
        peer.writer.write(GET)
        assert await peer.answer() == b"HTTP/1.1 200 OK"


async def test_a_certified_client_may_open_a_connection_before_it_needs_it(
    own: Find, clients: ClientAuthority, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection_deadlines, "FIRST_SECONDS", 0.05)
    secured = certificate_reload.Tls(own, clients.file)
    context = visitor(tmp_path, clients.issue((NameOID.COMMON_NAME, "apiserver")))
    async with (
        serving_at(answer_scope, secured) as address,
        peer_of(address, context=context) as peer,
    ):
        await asyncio.sleep(0.3)
        peer.writer.write(GET)
        assert await peer.answer() == b"HTTP/1.1 200 OK"


@pytest.mark.parametrize("close", [True, False])
async def test_an_answer_that_is_not_read_does_not_hold_a_connection(
    monkeypatch: pytest.MonkeyPatch, close: bool
) -> None:
    monkeypatch.setattr(connection_deadlines, "UNREAD_SECONDS", 0.2)
    left = asyncio.Event()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        headers = [(b"connection", b"close")] if close else []
        try:
            await send({"type": "http.response.start", "status": 200, "headers": headers})
            for more in (False,) if close else (True, False):
                body = b"a" * 20_000_000
                await send({"type": "http.response.body", "body": body, "more_body": more})
        finally:
            left.set()

    watched: list[Acceptor] = []
    async with serving_at(app, watched=watched.append) as address, peer_of(address) as peer:
        peer.writer.write(GET)
        await count_is(watched[0], OTHERS, 1)
        async with asyncio.timeout(DEADLINE_SECONDS):
            await left.wait()
        await count_is(watched[0], OTHERS, 0)


async def test_the_least_used_connection_gives_its_place_to_a_newcomer() -> None:
    dropped: list[str] = []
    how = AcceptorSettings(others_max=2, dropped=dropped.append)
    async with (
        serving_at(answer_scope, accepting=how) as address,
        peer_of(address) as first,
        peer_of(address) as second,
    ):
        for peer in (second, first):
            peer.writer.write(GET)
            assert await peer.answer() == b"HTTP/1.1 200 OK"
        async with peer_of(address) as third:
            assert await second.ended()
            for peer in (third, first):
                peer.writer.write(GET)
                assert await peer.answer() == b"HTTP/1.1 200 OK"
    assert dropped == [OTHERS]


async def test_one_address_has_a_bound_of_its_own() -> None:
    watched: list[Acceptor] = []
    how = AcceptorSettings(others_max=100, others_of_one_max=2)
    async with (
        serving_at(answer_scope, accepting=how, watched=watched.append) as address,
        peer_of(address, local="127.0.0.2") as other,
        peer_of(address) as first,
        peer_of(address),
    ):
        await count_is(watched[0], OTHERS, 3)
        async with peer_of(address):
            assert await first.ended()
            other.writer.write(GET)
            assert await other.answer() == b"HTTP/1.1 200 OK"


async def test_a_request_that_is_being_answered_keeps_its_connection() -> None:
    app = Blocking()
    async with (
        serving_at(app, accepting=AcceptorSettings(others_max=1)) as address,
        peer_of(address) as peer,
    ):
        peer.writer.write(GET.replace(b"/ ", b"/slow "))
        async with asyncio.timeout(DEADLINE_SECONDS):
            await app.entered.wait()
        async with peer_of(address) as newcomer:
            assert await newcomer.ended()
        app.let.set()
        assert await peer.answer() == b"HTTP/1.1 200 OK"


@pytest.mark.parametrize("head", [POST, b"POST / HTTP/1.1\r\nhost: a\r\n"])
async def test_a_body_that_never_comes_protects_no_connection(head: bytes) -> None:
    app = Blocking()
    async with (
        serving_at(app, accepting=AcceptorSettings(others_max=1)) as address,
        peer_of(address) as peer,
    ):
        peer.writer.write(GET.replace(b"/ ", b"/slow ") + head)
        async with asyncio.timeout(DEADLINE_SECONDS):
            await app.entered.wait()
        async with peer_of(address) as newcomer:
            assert await peer.ended()
            newcomer.writer.write(GET)
            assert await newcomer.answer() == b"HTTP/1.1 200 OK"
        app.let.set()


async def test_anonymous_clients_take_no_place_of_certified_ones(
    own: Find, clients: ClientAuthority, tmp_path: Path
) -> None:
    secured, stranger = certificate_reload.Tls(own, clients.file), visitor(tmp_path)
    certified = visitor(tmp_path, clients.issue((NameOID.COMMON_NAME, "apiserver")))
    how = AcceptorSettings(certified_max=1, others_max=2)
    async with (
        serving_at(answer_scope, secured, accepting=how) as address,
        peer_of(address, context=certified) as known,
        contextlib.AsyncExitStack() as stack,
    ):
        for _ in range(5):
            await stack.enter_async_context(peer_of(address, context=stranger))
        known.writer.write(GET)
        assert await known.answer() == b"HTTP/1.1 200 OK"
        assert (await get(f"https://{address}/", certified))[0] == 200


async def test_a_certificate_of_another_subject_counts_as_anonymous(
    own: Find, clients: ClientAuthority, tmp_path: Path
) -> None:
    secured = certificate_reload.Tls(own, clients.file)
    other = visitor(tmp_path, clients.issue((NameOID.COMMON_NAME, "kubelet")))
    watched: list[Acceptor] = []
    how = AcceptorSettings(trusted=lambda name: name == "CN=apiserver")
    async with (
        serving_at(answer_scope, secured, accepting=how, watched=watched.append) as address,
        peer_of(address, context=other),
    ):
        await count_is(watched[0], OTHERS, 1)


async def test_handshakes_that_stall_give_their_places_to_newcomers(
    own: Find, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(acceptor, "HANDSHAKES_MAX", 4)
    monkeypatch.setattr(acceptor, "STALLED_SECONDS", 0.1)
    dropped: list[str] = []
    watched: list[Acceptor] = []
    async with (
        serving_at(
            answer_scope,
            certificate_reload.Tls(own),
            accepting=AcceptorSettings(dropped=dropped.append),
            watched=watched.append,
        ) as address,
        contextlib.AsyncExitStack() as stack,
    ):
        for _ in range(20):
            await stack.enter_async_context(peer_of(address))
        assert (await get(f"https://{address}/", visitor(tmp_path)))[0] == 200
        assert watched[0].count(HANDSHAKES) <= 4
    assert HANDSHAKES in dropped
