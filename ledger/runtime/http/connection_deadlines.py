"""Connection deadlines: how long a connection may be idle or slow, and how large a head may be.

Uvicorn lacks these bounds: the size and time of a request's head, and the times of the first byte,
of an unread answer and of the end of TLS. So this subclass of uvicorn's HTTP protocol adds them.
`check` compares the times; the acceptor calls it for all connections.
"""

import asyncio
from collections.abc import Callable
from typing import Final, Protocol

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from ledger.runtime.http.client_certificate_access import subject_of, tls_extension

HEAD_BYTES_MAX: Final = 65_536
"""Request line and headers together; the API server's are below 4 KiB."""

FIRST_SECONDS: Final = 5.0
"""From the connection to the first byte of an unverified client."""

HEAD_SECONDS: Final = 10.0
"""From the first byte of a request to the end of its head, stray bytes before it included."""

IDLE_SECONDS: Final = 95.0
"""Between an answer and the next request; above the 90 s after which the API server itself closes
the connection, so that it never sends a review into one that is being closed."""

REST_SECONDS: Final = 5.0
"""For the rest of a body whose request was answered early."""

UNREAD_SECONDS: Final = 10.0
"""Time for which a peer may not read an answer, and time for closing a connection."""

_TOO_LARGE: Final = (
    b"HTTP/1.1 431 Request Header Fields Too Large\r\n"
    b"content-length: 0\r\nconnection: close\r\n\r\n"
)


class PoolMembership(Protocol):
    """The membership of a connection in a pool."""

    def used(self) -> None:
        """Record a use of the connection."""
        ...

    def leave(self) -> None:
        """Leave the pool."""
        ...


class HttpConnection(HttpToolsProtocol):
    """One connection; a subclass because uvicorn passes the transport to its protocol only.

    `place` returns its membership of a pool by the subject of its certificate, None without room.
    `certificate` is the client's certificate in DER, empty without one, and `subject` its subject.
    `whole` is set while no part of a request's body is missing.
    """

    place: Callable[[str | None], PoolMembership | None]
    certificate = b""
    subject: str | None = None
    whole = True

    _seat: PoolMembership | None = None
    _asked = False
    _head_bytes = 0
    _reading_head = False
    _idle_since = 0.0
    _head_since: float | None = None
    _closing_since: float | None = None
    _unread_since: float | None = None
    _tls: dict[object, object] | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn
        """Read the peer's certificate once, and join a pool."""
        super().connection_made(transport)
        self._idle_since = self.loop.time()
        tls = transport.get_extra_info("ssl_object")
        if tls is not None:
            self.certificate = tls.getpeercert(binary_form=True) or b""
            self._tls = tls_extension(tls)
            self.subject = subject_of(tls.getpeercert())
        self._seat = self.place(self.subject)
        if self._seat is None:
            transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        """Leave the pool."""
        if self._seat is not None:
            self._seat.leave()
        super().connection_lost(exc)

    def is_busy(self) -> bool:
        """Return whether a complete request is not answered yet; see `connection_pools`.

        An incomplete request does not count, also after a complete one.
        """
        if self._head_since is not None:
            return False
        return self.whole and self._asked and not self.cycle.response_complete

    def drop(self) -> None:
        """End the connection at once."""
        self.transport.abort()

    def data_received(self, data: bytes) -> None:
        """Parse, and close on a head that is too large."""
        if self._head_since is None and self.whole:
            self._head_since = self.loop.time()
        super().data_received(data)
        if not self._reading_head:
            return
        self._head_bytes += len(data)
        if self._head_bytes > HEAD_BYTES_MAX:
            self.transport.write(_TOO_LARGE)
            self.transport.close()

    def on_message_begin(self) -> None:
        """Start a request with the peer's certificate in its scope."""
        super().on_message_begin()
        self._reading_head = True
        self._head_bytes = 0
        if self._head_since is None:
            self._head_since = self.loop.time()
        if self._tls is not None:
            self.scope["extensions"] = {"tls": self._tls}

    def on_headers_complete(self) -> None:
        """Pass the request to the application, whose deadlines apply from here."""
        self.head_complete()
        super().on_headers_complete()

    def head_complete(self) -> None:
        """Record that the head of a request is complete."""
        self._asked = True
        self._reading_head = self.whole = False
        self._head_since = None

    def on_message_complete(self) -> None:
        """Record that a request is complete."""
        self.whole = True
        super().on_message_complete()

    def on_response_complete(self) -> None:
        """Continue with requests that were sent in the meantime, or become idle; uvicorn's timer is
        not started.
        """
        self.server_state.total_requests += 1
        self._idle_since = self.loop.time()
        if self._seat is not None:
            self._seat.used()
        if self.transport.is_closing():
            return
        self.flow.resume_reading()
        if self.pipeline:
            cycle, app = self.pipeline.pop()
            self._start_asgi_task(cycle, app)

    def pause_writing(self) -> None:
        """Record the time at which the peer stopped reading."""
        self._unread_since = self.loop.time()
        super().pause_writing()

    def resume_writing(self) -> None:
        """Record that the peer reads again."""
        self._unread_since = None
        super().resume_writing()

    def check(self, now: float) -> None:
        """Close the connection if a deadline has passed at loop time `now`."""
        if self.transport.is_closing():
            self._closing_since = self._closing_since or now
            if now - self._closing_since > UNREAD_SECONDS:
                self.transport.abort()
        elif self._unread_since is not None and now - self._unread_since > UNREAD_SECONDS:
            self.transport.abort()
        elif self._is_late(now):
            self._closing_since = now
            self.transport.close()

    def _is_late(self, now: float) -> bool:
        if self._head_since is not None and now - self._head_since > HEAD_SECONDS:
            return True
        if not self._asked:
            return now - self._idle_since > (
                FIRST_SECONDS if self.subject is None else IDLE_SECONDS
            )
        if not self.cycle.response_complete:
            return False
        return now - self._idle_since > (IDLE_SECONDS if self.whole else REST_SECONDS)
