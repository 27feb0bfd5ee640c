"""A bad way to the API server: Bindings are refused, lost, or done and never answered, at random.

It is between the product and the API server with that server's own certificate, and passes on
everything else as it is, watches too.
"""

import asyncio
import random
import ssl
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from enum import StrEnum
from pathlib import Path
from typing import Final, NamedTuple

import aiohttp
from aiohttp import web
from support.servers.ports import free_port

from tests.e2e.harness.controlplane import ControlPlane

BYTES_MAX: Final = 64 * 2**20
CHUNK_BYTES: Final = 65_536
CONNECTIONS_MAX: Final = 200
SHUTDOWN_SECONDS: Final = 1.0

_NOT_PASSED_ON: Final = {"host", "content-length", "transfer-encoding", "connection"}
_NOT_PASSED_BACK: Final = {"content-length", "transfer-encoding", "connection"}


class Fault(StrEnum):
    """The outcome of a Binding."""

    NONE = "none"
    """It is passed on and answered."""
    CONFLICT = "conflict"
    """It is refused as a conflict."""
    FORBIDDEN = "forbidden"
    """It is refused, as a webhook would."""
    UNAVAILABLE = "unavailable"
    """It is answered with 503 and never arrives."""
    LOST = "lost"
    """The connection breaks, and it never arrives."""
    UNANSWERED = "unanswered"
    """The connection breaks after it was done."""


_STATUSES: Final = {
    Fault.CONFLICT: (409, "Conflict"),
    Fault.FORBIDDEN: (403, "Forbidden"),
    Fault.UNAVAILABLE: (503, "ServiceUnavailable"),
}


class Sent(NamedTuple):
    """A request that arrived and was not passed on: method, path with query, headers and body."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes


class Faults:
    """Passes requests on to a control plane; of the Bindings, a `share` meets each of `faults`.

    `met` counts what became of them. While `holding` is true, Bindings stay in `held` and get no
    answer, as if the network kept them; `deliver` passes them on later.
    """

    def __init__(self, plane: ControlPlane, session: aiohttp.ClientSession, seed: int) -> None:
        self.met: Counter[Fault] = Counter()
        self.share = 0.0
        self.faults: tuple[Fault, ...] = tuple(Fault)[1:]
        self.port = free_port()
        self.holding = False
        self.held: list[Sent] = []
        self._url = plane.url
        self._session = session
        self._random = random.Random(seed)

    async def handle(self, request: web.Request) -> web.StreamResponse:
        """Pass one request on, or not."""
        fault = Fault.NONE
        if request.method == "POST" and request.path.endswith("/binding"):
            if self.holding:
                await self._hold(request)
            fault = self._next()
            self.met[fault] += 1
        if fault in _STATUSES:
            return _refusal(*_STATUSES[fault])
        if fault is Fault.LOST:
            return _broken(request)
        answer = await self._passed_on(request, answered=fault is Fault.NONE)
        return _broken(request) if answer is None else answer

    async def deliver(self) -> list[int]:
        """Pass on what is held, now that its sender may be gone; return the statuses."""
        statuses = []
        while self.held:
            sent = self.held.pop(0)
            async with self._session.request(
                sent.method, self._url + sent.path, data=sent.body, headers=sent.headers
            ) as answer:
                await answer.read()
                statuses.append(answer.status)
        return statuses

    async def _hold(self, request: web.Request) -> None:
        """Keep a request and never answer; the sender's end cancels this."""
        headers = _without(request.headers, _NOT_PASSED_ON)
        body = await request.read()
        self.held.append(Sent(request.method, request.raw_path, headers, body))
        await asyncio.Event().wait()

    async def _passed_on(
        self, request: web.Request, *, answered: bool
    ) -> web.StreamResponse | None:
        headers = _without(request.headers, _NOT_PASSED_ON)
        async with self._session.request(
            request.method,
            self._url + request.raw_path,
            data=await request.read() or None,
            headers=headers,
            auto_decompress=False,
        ) as upstream:
            if not answered:
                await upstream.read()
                return None
            answer = web.StreamResponse(
                status=upstream.status, headers=_without(upstream.headers, _NOT_PASSED_BACK)
            )
            await answer.prepare(request)
            async for chunk in upstream.content.iter_any():
                await answer.write(chunk)
            await answer.write_eof()
            return answer

    def _next(self) -> Fault:
        if self._random.random() >= self.share:
            return Fault.NONE
        return self._random.choice(self.faults)


@asynccontextmanager
async def in_between(plane: ControlPlane, seed: int = 0) -> AsyncIterator[Faults]:
    """Run before a control plane for the block; there are no faults until `share` is set."""
    timeout = aiohttp.ClientTimeout(total=None, sock_connect=5)
    connector = aiohttp.TCPConnector(
        ssl=ssl.create_default_context(cafile=str(plane.ca)), limit=CONNECTIONS_MAX
    )
    async with aiohttp.ClientSession(connector=connector, timeout=timeout) as session:
        made = Faults(plane, session, seed)
        app = web.Application(client_max_size=BYTES_MAX)
        app.router.add_route("*", "/{path:.*}", made.handle)
        runner = web.AppRunner(
            app, access_log=None, handler_cancellation=True, shutdown_timeout=SHUTDOWN_SECONDS
        )
        await runner.setup()
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(plane.ca, plane.server_key)
        await web.TCPSite(runner, "127.0.0.1", made.port, ssl_context=context).start()
        try:
            yield made
        finally:
            await runner.cleanup()


def kubeconfig(plane: ControlPlane, user: str, faults: Faults) -> Path:
    """Write the kubeconfig of a user who takes the bad way, and return it."""
    text = plane.kubeconfig(user).read_text()
    path = plane.folder / f"{user}-{faults.port}.kubeconfig"
    path.write_text(text.replace(plane.url, f"https://127.0.0.1:{faults.port}"))
    return path


def _refusal(status: int, reason: str) -> web.Response:
    body = {
        "kind": "Status",
        "apiVersion": "v1",
        "status": "Failure",
        "message": f"the test answers {status}",
        "reason": reason,
        "code": status,
    }
    return web.json_response(body, status=status)


def _broken(request: web.Request) -> web.Response:
    """Break the connection: the client gets no answer."""
    if request.transport is not None:
        request.transport.abort()
    return web.Response()


def _without(headers: Mapping[str, str], names: set[str]) -> dict[str, str]:
    return {name: text for name, text in headers.items() if name.lower() not in names}
