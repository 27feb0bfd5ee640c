"""HTTP server: one ASGI application on one socket, from a bound address to a graceful end.

Plain requests of its direct endpoints are served without ASGI; see `direct_connection`.

The socket is bound before other parts start, so a port in use ends the start at once. The
composition root owns signals and tasks; `serve` returns when `stop` is set and every request in
flight was answered, or after `DRAIN_SECONDS`.
"""

import asyncio
import contextlib
import errno
import signal
import socket
from collections.abc import Callable, Iterator
from typing import Final

import uvicorn
from starlette.types import ASGIApp

from ledger.runtime import addresses
from ledger.runtime.http.acceptor import Acceptor, AcceptorSettings
from ledger.runtime.http.direct_connection import DirectConnection
from ledger.runtime.http.direct_endpoints import DirectEndpoints
from ledger.runtime.tls.certificate_reload import Tls

BACKLOG: Final = 2048
"""Connections that the kernel queues before they are accepted."""

EVERYBODY: Final = AcceptorSettings()
"""The default bounds of connections."""

DRAIN_SECONDS: Final = 7
"""Time for requests in flight after `stop`; with all other closing, less than 10 s."""


class ListenError(Exception):
    """The address cannot be used; the message names it and the remedy."""


class Listener:
    """A bound socket. `address` is HOST:PORT with the real port."""

    def __init__(self, bound: socket.socket) -> None:
        """Own a bound socket; `serve` or `close` closes it."""
        self.socket: Final = bound
        host, port = bound.getsockname()[:2]
        self.address: Final = addresses.joined(host, port)

    def close(self) -> None:
        """Close the socket without serving."""
        self.socket.close()


def bind(listen: str, setting: str = "listen") -> Listener:
    """Bind HOST:PORT of a setting; port 0 is any free port. Raises ListenError."""
    host, port = addresses.split(listen)
    bound: socket.socket | None = None
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        bound = socket.socket(family, kind, protocol)
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind(address)
        bound.listen(BACKLOG)
    except OSError as error:
        if bound is not None:
            bound.close()
        raise ListenError(f"{setting} = {listen}: {_explained(error)}") from error
    bound.setblocking(False)
    return Listener(bound)


async def serve(
    app: ASGIApp,
    listener: Listener,
    stop: asyncio.Event,
    *,
    tls: Tls | None = None,
    direct: DirectEndpoints | None = None,
    accepting: AcceptorSettings = EVERYBODY,
    watched: Callable[[Acceptor], None] = lambda _: None,
    started: Callable[[], None] = lambda: None,
) -> None:
    """Serve until `stop` is set, then drain and close. `started` is called once it accepts.

    `watched` is called with the acceptor before that. Plain requests of the endpoints in `direct`
    are served without the application, which has to have them as well.
    """
    config = uvicorn.Config(
        app,
        http=DirectConnection,
        ws="none",
        lifespan="off",
        interface="asgi3",
        log_config=None,
        access_log=False,
        # A header must not make a remote client look like loopback.
        proxy_headers=False,
        server_header=False,
        timeout_graceful_shutdown=DRAIN_SECONDS,
    )
    server = _Server(config, direct=direct, started=started)
    server.acceptor = Acceptor(
        listener.socket,
        server.connection,
        tls=tls,
        settings=accepting,
    )
    watched(server.acceptor)
    serving = asyncio.create_task(server.serve(sockets=[listener.socket]))
    stopping = asyncio.create_task(stop.wait())
    try:
        await asyncio.wait({serving, stopping}, return_when=asyncio.FIRST_COMPLETED)
        server.should_exit = True
        await serving
    finally:
        stopping.cancel()
        serving.cancel()
        server.abandon()
        listener.close()


@contextlib.contextmanager
def stopping_on_signals(stop: asyncio.Event) -> Iterator[None]:
    """Set `stop` on SIGTERM and SIGINT while the context is open."""
    loop = asyncio.get_running_loop()
    signals = (signal.SIGTERM, signal.SIGINT)
    for number in signals:
        loop.add_signal_handler(number, stop.set)
    try:
        yield
    finally:
        for number in signals:
            loop.remove_signal_handler(number)


class _Server(uvicorn.Server):
    """uvicorn's server without its signal handling and its sockets."""

    acceptor: Acceptor

    def __init__(
        self,
        config: uvicorn.Config,
        *,
        direct: DirectEndpoints | None,
        started: Callable[[], None],
    ) -> None:
        super().__init__(config)
        self._direct, self._on_started = direct, started

    def connection(self) -> DirectConnection:
        """Return the protocol of a new connection."""
        made = DirectConnection(self.config, self.server_state, self.lifespan.state)
        made.endpoints = self._direct
        return made

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await self.lifespan.startup()
        self.servers = [self.acceptor]  # type: ignore[list-item]  # closed and waited for alike
        self.acceptor.open()
        self.started = True
        self._on_started()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        await super().shutdown(sockets)
        self.abandon()

    def abandon(self) -> None:
        """Close the remaining connections at once, for example of a peer that does not end TLS."""
        self.acceptor.abandon()
        for connection in list(self.server_state.connections):
            connection.transport.abort()


def _explained(error: OSError) -> str:
    if error.errno == errno.EADDRINUSE:
        return "the port is in use; stop its process or choose another port (0: a free one)"
    if error.errno == errno.EACCES:
        return "this user may not use the port; choose one above 1023"
    if isinstance(error, socket.gaierror) or error.errno == errno.EADDRNOTAVAIL:
        return "the host is not an address of this machine; use 127.0.0.1 or 0.0.0.0"
    return f"{error.strerror}; choose another address"
