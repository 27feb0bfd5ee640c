"""NATS connection: deadlines, errors with their causes, the JetStream API.

Promises: a call ends within its deadline; `Unreachable` means that nothing was sent, or no
subscriber received it; a request without an answer is a TimeoutError, at once when the connection
was lost. While disconnected nothing is buffered, so that no record is sent long after its writer
gave up. The client reconnects for ever. A client that closed itself (when a server rejects it
temporarily) is replaced at the next call. When a file with credentials changes, a new client
replaces the old one, which first ends its requests.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from typing import Any, Final

import msgspec
import nats.errors
import structlog
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription

from ledger.log.jetstream import nats_credentials
from ledger.log.jetstream.cancellation import (
    ConnectionLost,
    UnansweredRequests,
    first_answer,
    reraise_cancelled,
    run_apart,
)
from ledger.log.jetstream.nats_credentials import Access as Access
from ledger.log.jetstream.nats_credentials import CredentialsError, SecureClient
from ledger.log.jetstream.nats_errors import (
    ClientErrors,
    NoResponders,
    Unauthorized,
    no_responders_cause,
    plainly,
    raise_api_error,
    unreachable_class,
)
from ledger.log.log_port import Unreachable

RECONNECT_SECONDS: Final = 0.25
"""Wait between two attempts to reach the same server."""

CONNECT_SECONDS: Final = 2.0
"""Time for one server to accept a connection and to greet. The address of a pod that is gone does
not refuse; the client tries the next server after this time."""

PING_SECONDS: Final = 2
"""A silent connection, such as that to a lost node, is found dead after two to three of these. A
review must outlive that and the next connection."""

ASK_AGAIN_SECONDS: Final = 1.0
"""Wait before a question is asked again: a new leader answers none from before its election."""

LOOK_SECONDS: Final = 5.0
"""How often the files with credentials are checked."""

Receive = Callable[[Msg], Awaitable[None]]
"""Takes one message of a subscription."""

_UNSENT: Final = (
    nats.errors.NoRespondersError,
    nats.errors.OutboundBufferLimitError,
    nats.errors.ConnectionClosedError,
    nats.errors.ConnectionDrainingError,
    nats.errors.MaxPayloadError,
)

_OWN_API: Final = "$JS.API"
"""The subject prefix of JetStream's API of the connected servers."""

_json: Final = msgspec.json.Encoder()
_log: Final = structlog.get_logger("ledger.log")


class NatsConnection:
    """A client that outlives its servers' restarts. Make one with `NatsConnection.connect`."""

    def __init__(self, access: Access, deadline: float, *, domain: str | None = None) -> None:
        """Prepare a connection whose calls take at most `deadline` seconds each.

        With a domain, JetStream's API of that domain is used, across leaf nodes if need be.
        """
        self.access = access
        self.deadline = deadline
        self.domain = domain
        self.api_prefix = f"$JS.{domain}.API" if domain else _OWN_API
        self._client = Client()
        self._reviving = asyncio.Lock()
        self._closing = False
        self._errors = ClientErrors(CONNECT_SECONDS)
        self._unanswered = UnansweredRequests()
        self._subscriptions: dict[str, Receive] = {}
        self._subscribed: dict[str, Subscription] = {}
        self._watchers: set[Callable[[], None]] = set()
        self._marks = nats_credentials.marks(access.files)
        self._tasks: set[asyncio.Task[None]] = set()

    @classmethod
    async def connect(
        cls, access: Access, *, deadline: float, domain: str | None = None
    ) -> "NatsConnection":
        """Connect within the deadline. Raises Unreachable naming the servers and the reason."""
        connection = cls(access, deadline, domain=domain)
        await connection._dial()
        if access.files:
            connection._begin(connection._keep_fresh())
        return connection

    @property
    def closed(self) -> bool:
        """Whether `close` was called."""
        return self._closing

    async def client(self) -> Client:
        """Return the connected client, reviving one that closed itself. Raises Unreachable."""
        self._check_open()
        if self._client.is_closed:
            await self._revive()
        return self._client

    async def request(
        self,
        subject: str,
        payload: bytes,
        headers: Mapping[str, str] | None = None,
        *,
        deadline: float | None = None,
    ) -> bytes:
        """Send a request and return the answer's payload, within the connection's deadline or ours.

        Raises Unreachable without a subscriber, TimeoutError when no answer came, and its subclass
        ConnectionLost.
        """
        client = await self.client()
        try:
            async with self._unanswered.sent_by(client):
                answer = await reraise_cancelled(
                    client.request(
                        subject,
                        payload,
                        timeout=self.deadline if deadline is None else deadline,
                        headers=dict(headers) if headers else None,
                    )
                )
        except nats.errors.NoRespondersError as error:
            raise NoResponders(
                self._unreachable(f"{subject}: {no_responders_cause(self.domain)}")
            ) from error
        except _UNSENT as error:
            raise Unreachable(self._unreachable(f"{subject}: {plainly(error)}")) from error
        return answer.data

    async def publish(self, subject: str, payload: bytes, reply: str = "") -> None:
        """Send a message without acknowledgement; answers go to `reply`. Raises Unreachable."""
        client = await self.client()
        try:
            await client.publish(subject, payload, reply)
        except _UNSENT as error:
            raise Unreachable(self._unreachable(f"{subject}: {plainly(error)}")) from error

    async def subscribe(self, subject: str, receive: Receive) -> None:
        """Hand every message on a subject to a coroutine, on every connection made from now on.

        The coroutine must not wait long: messages of one subject are handed over one by one.
        Raises Unreachable.
        """
        while True:
            client = await self.client()
            async with self._reviving:
                if client is self._client:
                    self._subscriptions[subject] = receive
                    await self._resubscribe(client, subject)
                    return

    async def unsubscribe(self, subject: str) -> None:
        """Hand over no more messages on a subject; a connection that is gone hands over none."""
        self._subscriptions.pop(subject, None)
        subscription = self._subscribed.pop(subject, None)
        if subscription is not None:
            with contextlib.suppress(nats.errors.Error):
                await subscription.unsubscribe()

    async def api(
        self, verb: str, body: Any = None, *, near: bool = False, again: bool = False
    ) -> bytes:
        """Call JetStream's API (`STREAM.INFO.X`) and return its answer, JSON.

        `near` uses that of the connected servers. `again` calls every `ASK_AGAIN_SECONDS` until one
        call is answered: for questions only, because each call may take effect. Raises ApiError,
        NoResponders, Unreachable.
        """
        subject = f"{_OWN_API if near else self.api_prefix}.{verb}"
        payload = b"" if body is None else _json.encode(body)
        try:
            async with asyncio.timeout(self.deadline):
                pause = ASK_AGAIN_SECONDS if again else None
                answer = await first_answer(lambda: self.request(subject, payload), pause)
        except ConnectionLost as error:
            raise Unreachable(self._unreachable(f"{subject}: {error}")) from error
        except TimeoutError as error:
            if self._client.is_closed:
                raise self._no_connection() from error
            late = f"{subject} did not answer in {self.deadline:g} s"
            raise Unreachable(self._unreachable(late)) from error
        raise_api_error(subject, answer)
        return answer

    def on_change(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Call back when the connection was made again or closed; returns the unsubscribe call."""
        self._watchers.add(callback)
        return lambda: self._watchers.discard(callback)

    async def close(self) -> None:
        """Close the connection; calls that wait for an answer end."""
        self._closing = True
        self._notify()
        for task in tuple(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await _close(self._client, self.deadline)

    def _notify(self) -> None:
        for callback in tuple(self._watchers):
            callback()

    async def _resubscribe(self, client: Client, subject: str) -> None:
        receive = self._subscriptions[subject]
        self._subscribed[subject] = await client.subscribe(subject, cb=receive)

    async def _revive(self) -> None:
        """Replace a client that closed itself; all callers wait for the same one."""
        try:
            async with asyncio.timeout(self.deadline), self._reviving:
                self._check_open()
                if self._client.is_closed:
                    await self._dial()
                    self._notify()
        except TimeoutError as error:
            raise self._no_connection() from error

    async def _dial(self) -> None:
        """Make a client, and publish it once it is connected and has all subscriptions.

        A subscription on it before that would be made twice.
        """
        marks = nats_credentials.marks(self.access.files)
        client = await self._connected(tuple(self._subscriptions))
        self._client, self._marks = client, marks

    async def _connected(self, subjects: tuple[str, ...]) -> Client:
        """Return a connected client with these subscriptions. Raises Unreachable."""
        client = SecureClient() if self.access.secured else Client()
        try:
            async with asyncio.timeout(self.deadline):
                options = await asyncio.to_thread(self._options, client)
                await reraise_cancelled(client.connect(**options))
                for subject in subjects:
                    await self._resubscribe(client, subject)
            self._check_open()
        except CredentialsError as error:
            raise Unauthorized(self._unreachable(str(error))) from error
        except (TimeoutError, OSError, ValueError, nats.errors.Error) as error:
            await _close(client, self.deadline)
            if not _greeted(client):
                self._errors.accepted_silently(now=asyncio.get_running_loop().time())
            raise self._no_connection() from error
        except BaseException:
            await _close(client, self.deadline)
            raise
        return client

    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _keep_fresh(self) -> None:
        """Use changed credentials soon after their files were replaced."""
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            marks = nats_credentials.marks(self.access.files)
            if marks == self._marks:
                continue
            try:
                await self._renew(marks)
            except (Unreachable, nats.errors.Error) as error:
                _log.warning("nats_credentials_not_renewed", reason=plainly(error))

    async def _renew(self, marks: nats_credentials.Marks) -> None:
        """Replace a working client by a new one. Raises Unreachable, and changes nothing then.

        A message may reach neither of the two, as when a server restarts;
        none reaches both.
        """
        async with self._reviving:
            client = await self._connected(())
            old, before = self._client, self._subscribed
            self._client, self._marks, self._subscribed = client, marks, {}
            self._begin(self._retire(old))
            for subject in tuple(self._subscriptions):
                if subject in before:
                    self._begin(_drain(before[subject], self.deadline))
                await self._resubscribe(client, subject)
        self._notify()
        _log.info("nats_credentials_renewed", servers=self._servers())

    async def _retire(self, client: Client) -> None:
        """Close a client after the deadlines of its open requests."""
        try:
            await asyncio.sleep(self.deadline)
        finally:
            await _close(client, self.deadline)

    def _check_open(self) -> None:
        if self._closing:
            raise Unreachable("the connection to NATS was closed by this process")

    def _options(self, client: Client) -> dict[str, Any]:
        """Return the options of a client. Reads files; raises CredentialsError."""
        access = self.access
        user, password = access.user, access.password
        if access.login:
            login = nats_credentials.read_login(access.login)
            user, password = login.user, login.password
        nats_credentials.check_keys(access)

        async def disconnected() -> None:
            self._unanswered.lost(client)
            # One that was replaced is closed on purpose.
            if client is self._client and not self._closing:
                _log.warning("nats_disconnected", servers=self._servers())

        return {
            "servers": list(access.servers),
            "name": "gpuledger",
            "user": user or None,
            "password": password or None,
            "user_credentials": access.credentials or None,
            "nkeys_seed": access.nkey_seed or None,
            "tls": nats_credentials.trusting(access.ca) if access.ca else None,
            "inbox_prefix": access.inbox_prefix,
            "error_cb": self._on_error,
            "disconnected_cb": disconnected,
            "reconnected_cb": self._on_reconnected,
            "max_reconnect_attempts": -1,
            "reconnect_time_wait": RECONNECT_SECONDS,
            "ping_interval": PING_SECONDS,
            "connect_timeout": min(self.deadline, CONNECT_SECONDS),
            "pending_size": 0,
        }

    async def _on_error(self, error: Exception) -> None:
        # `asyncio.wait_for` in Python 3.11 may swallow the cancellation of this task; the client's
        # endless loop of attempts would then go on after its deadline.
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            raise asyncio.CancelledError
        text = self._errors.add(error, now=asyncio.get_running_loop().time())
        if text is None:
            return
        _log.warning("nats_error", error=text, servers=self._servers())

    async def _on_reconnected(self) -> None:
        self._errors.clear()
        self._notify()
        _log.info("nats_reconnected", servers=self._servers())

    def _no_connection(self) -> Unreachable:
        """Return the error of a connection that could not be made, by the client's errors."""
        return unreachable_class(self._errors)(self._unreachable("no connection"))

    def _unreachable(self, what: str) -> str:
        return f"NATS at {self._servers()}: {'; '.join((what, *self._errors))}"

    def _servers(self) -> str:
        """Return the servers' addresses without secrets."""
        return ", ".join(server.rsplit("@", 1)[-1] for server in self.access.servers)


def _greeted(client: Client) -> bool:
    """Return whether the server sent anything since it accepted the connection."""
    return not client._transport or bool(client._server_info)


async def _drain(subscription: Subscription, deadline: float) -> None:
    """Take no more messages, and handle those that came."""
    with contextlib.suppress(TimeoutError, OSError, nats.errors.Error):
        async with asyncio.timeout(deadline):
            await subscription.drain()  # type: ignore[no-untyped-call]


async def _close(client: Client, deadline: float) -> None:
    with contextlib.suppress(TimeoutError, OSError, nats.errors.Error, AssertionError):
        await run_apart(client.close(), deadline)
