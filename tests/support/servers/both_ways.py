"""Both ways: one JSON endpoint behind a real server, with and without the direct path."""

import asyncio
import contextlib
import re
from collections.abc import AsyncIterator, Callable
from typing import Any, Final

import msgspec
from starlette.applications import Starlette
from starlette.types import ASGIApp, Receive, Scope, Send
from support.servers.tls_server import DEADLINE_SECONDS, serving_at

from ledger.runtime.http import direct_endpoints
from ledger.runtime.http.direct_endpoints import DirectEndpoints
from ledger.runtime.http.json_endpoint import BodyBudget, BodyLimits, JsonEndpoint
from ledger.runtime.http.loopback_access import LoopbackRequired
from ledger.runtime.tls.certificate_reload import Tls

WAYS: Final = ("direct", "application")
PATH: Final = "/admission/validate"
BODY_MAX: Final = 100_000

_DATE: Final = re.compile(rb"date: [^\r]*\r\n")


class Malformed(Exception):
    """The body is not what the endpoint reads."""

    field = "$"


class Handler:
    """Answers with the body in quotes.

    The body `slow` waits until `let` is set, `bad` is refused, and `defect` meets a defect.
    """

    def __init__(self, *, seconds: float = 9.0, budget: int = 16 * BODY_MAX) -> None:
        self.entered, self.let, self.cancelled = asyncio.Event(), asyncio.Event(), asyncio.Event()
        self.answered: list[bytes] = []
        self.tasks: list[object] = []
        self.deadlines: list[float] = []
        self.observed: list[float] = []
        self.budget = BodyBudget(budget)
        self.endpoint: JsonEndpoint[bytes, str] = JsonEndpoint(
            self.answer,
            decode=bytes,
            encode=msgspec.json.encode,
            refusals={Malformed: (400, "Malformed")},
            limits=BodyLimits(BODY_MAX, seconds, self.budget),
            observe_seconds=self.observed.append,
        )

    async def answer(self, body: bytes, until: float) -> str:
        """Return the body as text."""
        self.tasks.append(asyncio.current_task())
        self.deadlines.append(until)
        self.entered.set()
        if body.startswith(b"slow"):
            try:
                await self.let.wait()
            except asyncio.CancelledError:
                self.cancelled.set()
                raise
        if body == b"bad":
            raise Malformed("the body is bad")
        if body == b"defect":
            raise ValueError("the handler met a defect")
        self.answered.append(body)
        return body.decode()


class CountedApplication:
    """The guarded application, and how many requests it has got."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self.count = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on."""
        self.count += 1
        await self._app(scope, receive, send)


Guarded = Callable[[ASGIApp], Any]


@contextlib.asynccontextmanager
async def serving_way(
    way: str,
    handler: Handler,
    guarded: Guarded = LoopbackRequired,
    *,
    secured: Tls | None = None,
    **how: Any,
) -> AsyncIterator[tuple[str, CountedApplication]]:
    """Serve the endpoint; yields HOST:PORT and the application."""
    endpoints = {PATH: handler.endpoint}
    guard = guarded(Starlette(routes=direct_endpoints.routes(endpoints)))
    app = CountedApplication(guard)
    direct = DirectEndpoints(endpoints, guard) if way == "direct" else None
    async with serving_at(app, secured, direct=direct, **how) as address:
        yield address, app


def post(
    body: bytes, *headers: bytes, path: str = PATH, kind: bytes = b"application/json"
) -> bytes:
    """Return the bytes of a request."""
    lines = [b"POST %s HTTP/1.1" % path.encode(), b"host: localhost", b"content-type: " + kind]
    lines += [b"content-length: %d" % len(body), *headers]
    return b"\r\n".join(lines) + b"\r\n\r\n" + body


class Client:
    """A client on a bare connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    def send(self, data: bytes) -> None:
        """Send bytes."""
        self.writer.write(data)

    async def answer(self) -> tuple[int, bytes, bytes]:
        """Return status, head and body of the next answer; its body has a length."""
        async with asyncio.timeout(DEADLINE_SECONDS):
            head = await self.reader.readuntil(b"\r\n\r\n")
            length = re.search(rb"content-length: (\d+)", head)
            body = await self.reader.readexactly(int(length[1]) if length else 0)
        return int(head.split(b" ", 2)[1]), head, body

    async def rest(self) -> bytes:
        """Return everything until the server ends the connection, without dates."""
        received = b""
        async with asyncio.timeout(DEADLINE_SECONDS):
            with contextlib.suppress(ConnectionError):
                while part := await self.reader.read(1 << 20):
                    received += part
        return _DATE.sub(b"", received)


@contextlib.asynccontextmanager
async def client_of(address: str, **how: Any) -> AsyncIterator[Client]:
    """Connect for the block; the connection is then cut."""
    host, _, port = address.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port), limit=1 << 26, **how)
    try:
        yield Client(reader, writer)
    finally:
        writer.transport.abort()
