"""HTTP stack of commit 75bd653: uvicorn, its httptools protocol, TLS, and JSON bodies by ASGI.

Only parts that a request passes are here. Versions of uvicorn and Starlette are those of the lock.
"""

import asyncio
import contextlib
import socket
import ssl
from collections.abc import Awaitable, Iterator
from pathlib import Path
from typing import Final

import msgspec
import uvicorn
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from ledger.runtime.tls import certificate_reload

HOST: Final = "127.0.0.1"
BACKLOG: Final = 2048
CONNECTIONS_MAX: Final = 4096
KEEP_ALIVE_SECONDS: Final = 95
DRAIN_SECONDS: Final = 7
HEAD_BYTES_MAX: Final = 65_536
HEAD_SECONDS: Final = 10.0

_JSON: Final = (b"content-type", b"application/json")
_CLOSE: Final = (b"connection", b"close")


class RefusedBody(Exception):
    """The request is answered with a 4xx of this status and JSON body."""

    def __init__(self, status: int, message: str, *headers: tuple[bytes, bytes]) -> None:
        super().__init__(message)
        self.status, self.headers = status, headers
        self.body = msgspec.json.encode({"error": "BadRequest", "message": message})


class GoneClient(Exception):
    """The client has closed the connection."""


class FrozenConnection(HttpToolsProtocol):
    """One connection, with a bound and a timer for the head of each request."""

    _head_bytes = 0
    _reading_head = False
    _head_timer: asyncio.TimerHandle | None = None
    _tls: dict[object, object] | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn
        super().connection_made(transport)
        tls = transport.get_extra_info("ssl_object")
        if tls is not None:
            self._tls = {"client_cert_chain": [], "client_cert_name": None}
        self._wait_for_head()

    def connection_lost(self, exc: Exception | None) -> None:
        self._head_ended()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if not self._reading_head:
            return
        self._head_bytes += len(data)
        if self._head_bytes > HEAD_BYTES_MAX:
            self.transport.close()
        elif self._head_timer is None:
            self._wait_for_head()

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._reading_head = True
        self._head_bytes = 0
        if self._tls is not None:
            self.scope["extensions"] = {"tls": self._tls}

    def on_headers_complete(self) -> None:
        self._reading_head = False
        self._head_ended()
        super().on_headers_complete()

    def _wait_for_head(self) -> None:
        self._head_timer = self.loop.call_later(HEAD_SECONDS, self.transport.close)

    def _head_ended(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None


class FrozenServer(uvicorn.Server):
    """uvicorn's server without its own signal handling, for HTTPS on loopback."""

    def __init__(self, app: ASGIApp, store: Path, port: int) -> None:
        """Load the certificates of a store, and bind the port."""
        context = _context(store)
        super().__init__(
            uvicorn.Config(
                app,
                http=FrozenConnection,
                ws="none",
                lifespan="off",
                interface="asgi3",
                log_config=None,
                access_log=False,
                proxy_headers=False,
                server_header=False,
                limit_concurrency=CONNECTIONS_MAX,
                backlog=BACKLOG,
                timeout_keep_alive=KEEP_ALIVE_SECONDS,
                timeout_graceful_shutdown=DRAIN_SECONDS,
                ssl_context_factory=lambda _config, _default: context,
            )
        )
        self._bound = _bound(port)

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    async def serve_until(self, stop: Awaitable[object]) -> None:
        """Serve until `stop` returns."""
        serving = asyncio.create_task(self.serve(sockets=[self._bound]))
        await stop
        self.should_exit = True
        await serving


def check(scope: Scope, body_max: int) -> None:
    """Refuse a request that is not a POST of JSON of this size. Raises RefusedBody."""
    if scope["method"] != "POST":
        raise RefusedBody(405, f"{scope['method']} is not supported here, send POST")
    headers = dict(scope["headers"])
    kind = headers.get(b"content-type", b"").partition(b";")[0].strip().lower()
    if kind != b"application/json":
        raise RefusedBody(415, "send application/json")
    length = headers.get(b"content-length", b"")
    if length.isdigit() and len(length) < 20 and int(length) > body_max:
        raise RefusedBody(413, f"the request is larger than {body_max} bytes", _CLOSE)


async def read(receive: Receive, body_max: int, until: float) -> bytes:
    """Read a body of at most `body_max` bytes until loop time `until`.

    Raises RefusedBody and GoneClient.
    """
    parts: list[bytes] = []
    size, more = 0, True
    try:
        async with asyncio.timeout_at(until):
            while more and size <= body_max:
                message = await receive()
                if message["type"] == "http.disconnect":
                    raise GoneClient
                parts.append(message.get("body", b""))
                size += len(parts[-1])
                more = message.get("more_body", False)
    except TimeoutError as error:
        raise RefusedBody(408, "the body did not arrive in time", _CLOSE) from error
    if size > body_max:
        raise RefusedBody(413, f"the request is larger than {body_max} bytes", _CLOSE)
    return b"".join(parts)


async def answer(
    send: Send, status: int, body: bytes, headers: tuple[tuple[bytes, bytes], ...] = ()
) -> None:
    """Answer with a status and a JSON body."""
    length = (b"content-length", str(len(body)).encode())
    await send(
        {"type": "http.response.start", "status": status, "headers": [_JSON, length, *headers]}
    )
    await send({"type": "http.response.body", "body": body})


def _context(store: Path) -> ssl.SSLContext:
    """Return a context for the certificate of a store, which is made if it is missing."""
    files = certificate_reload.own(store / "tls", (HOST,))()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    context.load_cert_chain(files.certificate, files.key)
    return context


def _bound(port: int) -> socket.socket:
    bound = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    bound.bind((HOST, port))
    bound.listen(BACKLOG)
    bound.setblocking(False)
    return bound
