"""Acceptor: sockets, handshakes and connection pools in front of the HTTP server.

A connection begins among the handshakes. The certificate of its client then decides its pool:
clients that may send reviews, or others. So unverified clients compete only with each other. Each
connection gets the TLS context that is current when it is accepted.

One task checks the deadlines of all connections (`TURN_SECONDS`), so a request starts no timer.
"""

import asyncio
import contextlib
import errno
import functools
import socket
from collections.abc import Callable
from typing import Any, Final

import msgspec

from ledger.runtime.http.connection_deadlines import HttpConnection, PoolMembership
from ledger.runtime.http.connection_pools import Pool, address_of
from ledger.runtime.tls.certificate_reload import Authorities, Tls

HANDSHAKES_MAX: Final = 1024
"""Connections that have not ended their TLS handshake."""

HANDSHAKE_SECONDS: Final = 5.0
"""Deadline of a handshake."""

STALLED_SECONDS: Final = 0.3
"""Deadline of a handshake while other connections wait for its place."""

GOODBYE_SECONDS: Final = 5.0
"""Deadline of a peer's answer to the end of TLS."""

TURN_SECONDS: Final = 0.5
"""Interval at which the deadlines of all connections are checked."""

AT_ONCE_MAX: Final = 8
"""Connections that are accepted before other tasks run."""

PAUSE_SECONDS: Final = 0.05
"""Pause of accepting without room or without file descriptors."""

_EXHAUSTED: Final = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)

CERTIFIED, OTHERS, HANDSHAKES = ("certified", "others", "handshakes")
"""Names of the pools in metrics."""


class AcceptorSettings(msgspec.Struct, frozen=True):
    """Bounds of connections.

    At most `certified_max` and `others_max` are open, of the others `others_of_one_max` of one
    address (None: no bound for one address). `trusted` returns whether the subject of a certificate
    (None: there is none) is of a client that may send reviews. `dropped` is called with the pool of
    each dropped connection.
    """

    certified_max: int = 4096
    others_max: int = 4096
    others_of_one_max: int | None = None
    trusted: Callable[[str | None], bool] = lambda name: name is not None
    dropped: Callable[[str], None] = lambda _: None


_OF_TLS: Final = {
    "ssl_handshake_timeout": HANDSHAKE_SECONDS,
    "ssl_shutdown_timeout": GOODBYE_SECONDS,
}


class _Handshake:
    """A connection during its handshake."""

    def __init__(self, accepted: socket.socket, address: str) -> None:
        self.address = address
        self._socket, self._clock = accepted, asyncio.get_running_loop().time
        self._began = self._clock()

    def is_busy(self) -> bool:
        """Return whether it began so recently that the client may still be sending."""
        return self._clock() - self._began < STALLED_SECONDS

    def drop(self) -> None:
        """End it; the task that waits for the handshake observes the end of the connection."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)


class _Membership:
    """A connection's place in its pool."""

    def __init__(
        self, pool: Pool[HttpConnection], *, address: str, connection: HttpConnection
    ) -> None:
        self._pool, self._address, self._connection = pool, address, connection

    def used(self) -> None:
        """Note that the connection was just used."""
        self._pool.used(self._address, self._connection)

    def leave(self) -> None:
        """Leave the pool."""
        self._pool.remove(self._address, self._connection)


class Acceptor:
    """Accepts connections from one bound socket until it is closed."""

    def __init__(
        self,
        bound: socket.socket,
        make: Callable[[], HttpConnection],
        *,
        tls: Tls | None,
        settings: AcceptorSettings,
    ) -> None:
        """`make` returns the protocol of a new connection; without `tls` all are plain."""
        self._socket, self._make, self._tls = bound, make, tls
        self._authorities = None if tls is None else tls.authorities
        self._trusted, self._dropped = settings.trusted, settings.dropped
        self._loop = asyncio.get_running_loop()
        self._pools: dict[str, Pool[HttpConnection]] = {
            CERTIFIED: Pool(settings.certified_max),
            OTHERS: Pool(settings.others_max, settings.others_of_one_max),
        }
        self._handshakes: Pool[_Handshake] = Pool(HANDSHAKES_MAX)
        self._tasks: set[asyncio.Task[None]] = set()
        self._turning: asyncio.TimerHandle | None = None
        self._resuming: asyncio.TimerHandle | None = None

    def open(self) -> None:
        """Start accepting."""
        self._loop.add_reader(self._socket.fileno(), self._accept)
        self._turn()

    def close(self) -> None:
        """Stop accepting. Open connections stay open, and their deadlines are still checked."""
        if self._resuming is not None:
            self._resuming.cancel()
        if self._socket.fileno() >= 0:
            self._loop.remove_reader(self._socket.fileno())
        for handshake in self._handshakes:
            handshake.drop()

    def abandon(self) -> None:
        """Close at once, also handshakes in progress."""
        self.close()
        if self._turning is not None:
            self._turning.cancel()
        for task in self._tasks:
            task.cancel()

    async def wait_closed(self) -> None:
        """Wait until all handshakes have ended."""
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def count(self, pool: str) -> int:
        """Return how many connections a pool has."""
        return len(self._handshakes) if pool == HANDSHAKES else len(self._pools[pool])

    def _accept(self) -> None:
        for _ in range(AT_ONCE_MAX):
            full = self._handshakes.is_full
            if not self._handshakes.has_room():
                # All began so recently that their clients may still be sending.
                self._pause()
                return
            if full:
                self._dropped(HANDSHAKES)
            try:
                accepted, peer = self._socket.accept()
            except (BlockingIOError, InterruptedError):
                return
            except OSError as error:
                if error.errno in _EXHAUSTED:
                    self._pools[OTHERS].drop_one()
                    self._pause()
                    return
                continue  # this one was gone before it was accepted
            self._begin(accepted, address_of(str(peer[0])))

    def _begin(self, accepted: socket.socket, address: str) -> None:
        accepted.setblocking(False)
        handshake = _Handshake(accepted, address)
        self._handshakes.add(address, handshake)
        task = self._loop.create_task(self._open(accepted, handshake))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _open(self, accepted: socket.socket, handshake: _Handshake) -> None:
        how: dict[str, Any] = {}
        authorities = None
        if self._tls is not None:
            authorities = self._tls.authorities
            how = {"ssl": self._tls.context, **_OF_TLS}
        try:
            await self._loop.connect_accepted_socket(
                lambda: self._made(handshake.address, authorities), accepted, **how
            )
        except (OSError, asyncio.CancelledError):
            # The peer gave up, speaks no TLS (ssl.SSLError), or took too long (TimeoutError).
            accepted.close()
        finally:
            self._handshakes.remove(handshake.address, handshake)

    def _made(self, address: str, authorities: Authorities | None) -> HttpConnection:
        """Return a protocol that joins a pool once it has its peer's certificate.

        `authorities` are the CAs of clients at the beginning of its handshake.
        """
        connection = self._make()

        def place(name: str | None) -> PoolMembership | None:
            if self._is_distrusted(connection, authorities):
                return None
            return self._placed(connection, address, name)

        connection.place = place
        return connection

    def _placed(
        self, connection: HttpConnection, address: str, name: str | None
    ) -> PoolMembership | None:
        trusted = self._trusted(name)
        which = CERTIFIED if trusted else OTHERS
        pool = self._pools[which]
        before = len(pool)
        if not pool.add(address, connection):
            self._dropped(which)
            return None
        if len(pool) == before:
            self._dropped(which)
        return _Membership(pool, address=address, connection=connection)

    def _pause(self) -> None:
        self._loop.remove_reader(self._socket.fileno())
        self._resuming = self._loop.call_later(PAUSE_SECONDS, self._resume)

    def _resume(self) -> None:
        self._loop.add_reader(self._socket.fileno(), self._accept)

    def _turn(self) -> None:
        """Check the deadlines of all connections, and schedule the next check."""
        now = self._loop.time()
        for pool in self._pools.values():
            for connection in pool:
                connection.check(now)
        self._end_distrusted()
        self._turning = self._loop.call_later(TURN_SECONDS, self._turn)

    def _is_distrusted(self, connection: HttpConnection, authorities: Authorities | None) -> bool:
        """Return whether the CA of a client was removed from the file during the handshake."""
        tls = self._tls
        if tls is None or tls.authorities is authorities or not connection.certificate:
            return False
        return not tls.trusts(connection.certificate)

    def _end_distrusted(self) -> None:
        """End the connections of clients whose CA was removed from the file."""
        tls = self._tls
        if tls is None or tls.authorities is self._authorities:
            return
        self._authorities = tls.authorities
        trusts = functools.cache(tls.trusts)
        for pool in self._pools.values():
            for connection in pool:
                if connection.certificate and not trusts(connection.certificate):
                    connection.shutdown()
