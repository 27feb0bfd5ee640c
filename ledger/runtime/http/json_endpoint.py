"""JSON over HTTP: endpoints that read a bounded body and write a bounded answer.

They are plain ASGI, because they need nothing else of a web framework. `direct_connection` serves
the same endpoints without ASGI. A refusal is an HTTP status
with a JSON body that names the error. A body has a largest size and a deadline, and all bodies in
memory share a budget: a body counts from its first byte until its request is answered. If the next
bytes do not fit, the oldest incomplete body is dropped once it has been arriving for
`ARRIVAL_SECONDS`; a complete body stays. So slow senders cannot block others, and quick senders
wait for each other.
"""

import asyncio
import zlib
from collections.abc import Awaitable, Callable, Mapping
from typing import Final, Generic, NamedTuple, TypeVar

import msgspec
from starlette.types import Receive, Scope, Send

ARRIVAL_SECONDS: Final = 2.0
"""Time that a body may take to arrive while others wait for its bytes."""

_JSON: Final = (b"content-type", b"application/json")
_CLOSE: Final = (b"connection", b"close")
"""Header of answers to incomplete bodies: the connection accepts no second request."""

_GZIP: Final = 16 + zlib.MAX_WBITS
"""For zlib: expect the header of gzip."""


BEGUN: Final = "gpuledger.begun"
"""In the scope of a request that another reader began: the `BegunRequest`."""


class ClientGone(Exception):
    """The client has closed the connection."""


class RequestProblem(msgspec.Struct, frozen=True, omit_defaults=True):
    """The body of a 4xx: the error and its field."""

    error: str
    message: str
    field: str = ""


class RequestRefused(Exception):
    """The HTTP request is answered with an error: `status`, and a JSON `body` with the message."""

    def __init__(
        self, status: int, error: str, *headers: tuple[bytes, bytes], message: str
    ) -> None:
        super().__init__(message)
        self.status = status
        self.body = msgspec.json.encode(RequestProblem(error, message))
        self.headers = headers


class BudgetShare:
    """One request's share of the budget, held for a `with` block."""

    __slots__ = ("_budget", "began", "bytes", "end_reading", "gave_way")

    def __init__(self, budget: "BodyBudget") -> None:
        """Begin without bytes; `BodyBudget.holding` makes shares."""
        self._budget = budget
        self.bytes = 0
        self.began = 0.0
        self.end_reading: Callable[[float], None] | None = None
        """Ends the reading of this body at a loop time; set while it is read."""
        self.gave_way = False

    def __enter__(self) -> "BudgetShare":
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def end(self) -> None:
        """Release all bytes, because the request is answered."""
        self._budget.arrived(self)
        self._budget.give_back(self, self.bytes)

    def takes_at_once(self, size: int, *, more: bool) -> bool:
        """Reserve the next bytes of the body if there is room now; `more`: further bytes follow."""
        return self._budget.takes_at_once(self, size, more=more)

    async def take(self, size: int, *, more: bool) -> None:
        """Reserve the next bytes of the body; `more`: further bytes follow.

        Waits for room until the reader's deadline, or until this body is dropped. Both call
        `end_reading`, whose timeout surrounds this call.
        """
        if not self._budget.takes_at_once(self, size, more=more):
            await self._budget.take(self, size, more=more)

    def arrived(self) -> None:
        """Record that the body is complete, or is not read further."""
        self._budget.arrived(self)

    def give_back(self, size: int) -> None:
        """Release some of the reserved bytes."""
        self._budget.give_back(self, size)


class BegunRequest(NamedTuple):
    """A request whose body is being read: its share of the budget, and the loop time of its head.

    The share may have bytes already: of the beginning of the body, which is read first.
    """

    held: BudgetShare
    began: float


class BodyBudget:
    """A budget of `bytes_max` bytes for bodies; `bytes` are reserved now."""

    def __init__(self, bytes_max: int) -> None:
        """Bound the bodies of requests; the largest body must fit."""
        self._bytes_max = bytes_max
        self._arriving: dict[BudgetShare, None] = {}
        self._freed = asyncio.Event()
        self.bytes = 0

    def holding(self) -> BudgetShare:
        """Return a share for a request; hold it until the answer."""
        return BudgetShare(self)

    def takes_at_once(self, held: BudgetShare, size: int, *, more: bool) -> bool:
        """Reserve bytes for a share if that needs no wait; most bodies arrive in one part."""
        if more and held not in self._arriving:
            held.began = asyncio.get_running_loop().time()
            self._arriving[held] = None
        if self.bytes + size > self._bytes_max:
            return False
        self.bytes += size
        held.bytes += size
        return True

    async def take(self, held: BudgetShare, size: int, *, more: bool) -> None:
        """Reserve bytes for a share; see `BudgetShare.take`."""
        while not self.takes_at_once(held, size, more=more):
            await self._make_room()

    def arrived(self, held: BudgetShare) -> None:
        """Record that a body is complete, or is not read further."""
        self._arriving.pop(held, None)

    def give_back(self, held: BudgetShare, size: int) -> None:
        """Release some of a body's bytes."""
        if size:
            self.bytes -= size
            held.bytes -= size
            self._freed.set()

    async def _make_room(self) -> None:
        """Drop the oldest incomplete body, or wait until bytes are released."""
        now = asyncio.get_running_loop().time()
        oldest = next(iter(self._arriving), None)
        left = None if oldest is None else oldest.began + ARRIVAL_SECONDS - now
        if oldest is not None and left is not None and left <= 0:
            self._give_way(oldest, now)
            # Its reader is cancelled at its next step; its bytes are free at once.
            await asyncio.sleep(0)
            return
        self._freed.clear()
        try:
            async with asyncio.timeout(left):
                await self._freed.wait()
        except TimeoutError:
            return

    def _give_way(self, held: BudgetShare, now: float) -> None:
        self.arrived(held)
        self.give_back(held, held.bytes)
        held.gave_way = True
        if held.end_reading is not None:
            held.end_reading(now)


Request = TypeVar("Request")
Answer = TypeVar("Answer")


class Reply(NamedTuple):
    """The answer to a request: its status, JSON body, and headers beside those of the body."""

    status: int
    body: bytes
    headers: tuple[tuple[bytes, bytes], ...] = ()


class BodyLimits(msgspec.Struct, frozen=True):
    """The bounds of one endpoint's bodies: bytes of one, seconds for one request, bytes of all.

    Endpoints may share a `budget`. With `gzip`, bodies may be compressed; `bytes_max` then also
    bounds the inflated body.
    """

    bytes_max: int
    seconds: float
    budget: BodyBudget
    gzip: bool = False


class JsonEndpoint(Generic[Request, Answer]):
    """One path as an ASGI application: POST of a JSON body."""

    def __init__(
        self,
        answer: Callable[[Request, float], Awaitable[Answer]],
        *,
        decode: Callable[[bytes], Request],
        encode: Callable[[Answer], bytes],
        refusals: Mapping[type[Exception], tuple[int, str]],
        limits: BodyLimits,
        observe_seconds: Callable[[float], None] = lambda _: None,
    ) -> None:
        """Pass each request to `answer` with the loop time by which the answer is due.

        `refusals` has status and error name for each exception that `decode` and `answer` raise
        about a request; its text is the message and its `field`, if it has one, the field.
        `observe_seconds` receives the duration of each request.
        """
        self.limits, self.observe_seconds = limits, observe_seconds
        self._answer, self._decode, self._encode = answer, decode, encode
        self._refusals, self._refused = refusals, tuple(refusals)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        clock = asyncio.get_running_loop().time
        begun = scope.get(BEGUN) or BegunRequest(self.limits.budget.holding(), clock())
        began = begun.began
        try:
            with begun.held as held:
                until = began + self.limits.seconds
                await respond(send, *await self._served(scope, receive, until, held))
        except ClientGone:
            return
        finally:
            self.observe_seconds(clock() - began)

    async def reply(self, body: bytes, until: float) -> Reply:
        """Return the reply to a complete body, due at loop time `until`."""
        try:
            return Reply(200, self._encode(await self._answer(self._decode(body), until)))
        except self._refused as error:
            status, name = self._refusals[type(error)]
            problem = RequestProblem(name, str(error), getattr(error, "field", ""))
            return Reply(status, msgspec.json.encode(problem))

    async def _served(
        self, scope: Scope, receive: Receive, until: float, held: BudgetShare
    ) -> Reply:
        """Return the reply to a request. Raises ClientGone."""
        bytes_max = self.limits.bytes_max
        try:
            check_head(scope, bytes_max)
            body = await read_body(receive, bytes_max, until, held)
            if self.limits.gzip:
                body = await inflated_body(scope, body, bytes_max, until, held)
        except RequestRefused as refused:
            return Reply(refused.status, refused.body, refused.headers)
        return await self.reply(body, until)


def check_head(scope: Scope, body_max: int) -> None:
    """Refuse a request by its head: only a POST of JSON with at most `body_max` bytes is accepted.
    Raises RequestRefused.
    """
    if scope["method"] != "POST":
        message = f"{scope['method']} is not supported here, send POST"
        raise RequestRefused(405, "MethodNotAllowed", (b"allow", b"POST"), message=message)
    headers = dict(scope["headers"])
    kind = headers.get(b"content-type", b"").partition(b";")[0].strip().lower()
    if kind != b"application/json":
        text = kind.decode("latin-1") or "nothing"
        message = f"content-type is {text}, send application/json"
        raise RequestRefused(415, "UnsupportedMediaType", message=message)
    length = headers.get(b"content-length", b"")
    if length.isdigit() and len(length) < 20 and int(length) > body_max:
        raise _too_large(body_max)


async def read_body(receive: Receive, body_max: int, until: float, held: BudgetShare) -> bytes:
    """Read a request's body of at most `body_max` bytes, until loop time `until`.

    `held` is its share of the bytes of all bodies; bytes that it has are of the first part. Raises
    RequestRefused and ClientGone.
    """
    parts: list[bytes] = []
    size, more = 0, True
    try:
        async with asyncio.timeout_at(until) as timeout:
            held.end_reading = timeout.reschedule
            begun = held.bytes
            while more and size <= body_max:
                message = await receive()
                if message["type"] == "http.disconnect":
                    raise ClientGone
                part = message.get("body", b"")
                more = message.get("more_body", False)
                await held.take(len(part) - begun, more=more)
                begun = 0
                parts.append(part)
                size += len(part)
    except TimeoutError as error:
        raise late_refusal(held, whole=not more) from error
    finally:
        held.end_reading = None
        held.arrived()
    if size > body_max:
        raise _too_large(body_max)
    return b"".join(parts)


async def inflated_body(
    scope: Scope, body: bytes, body_max: int, until: float, held: BudgetShare
) -> bytes:
    """Return a body inflated, if it was compressed by gzip. Raises RequestRefused.

    It is inflated in a thread, because few bytes can become very many. The bytes of the result are
    reserved in `held` first, until loop time `until`.
    """
    coding = dict(scope["headers"]).get(b"content-encoding", b"").strip().lower()
    if coding in (b"", b"identity"):
        return body
    if coding != b"gzip":
        message = f"content-encoding is {coding.decode('latin-1')}, send gzip or none"
        raise RequestRefused(415, "UnsupportedMediaType", message=message)
    try:
        async with asyncio.timeout_at(until):
            await held.take(body_max, more=False)
    except TimeoutError as error:
        raise late_refusal(held, whole=True) from error
    inflated = await asyncio.to_thread(_inflate, body, body_max)
    held.give_back(body_max - len(inflated))
    return inflated


async def respond(
    send: Send, status: int, body: bytes, headers: tuple[tuple[bytes, bytes], ...] = ()
) -> None:
    """Answer with a status and a JSON body."""
    length = (b"content-length", str(len(body)).encode())
    await send(
        {"type": "http.response.start", "status": status, "headers": [_JSON, length, *headers]}
    )
    await send({"type": "http.response.body", "body": body})


def _inflate(body: bytes, body_max: int) -> bytes:
    machine = zlib.decompressobj(_GZIP)
    try:
        inflated = machine.decompress(body, body_max + 1)
    except zlib.error as error:
        raise RequestRefused(400, "BadRequest", message=f"the body is not gzip: {error}") from error
    if len(inflated) > body_max:
        raise _too_large(body_max)
    if not machine.eof:
        raise RequestRefused(
            400, "BadRequest", message="the body ends in the middle of its gzip stream"
        )
    return inflated


def late_refusal(held: BudgetShare, *, whole: bool) -> RequestRefused:
    """Return the refusal of a body that was late, or gave way; `whole`: it had arrived."""
    if whole or held.gave_way:
        message = "too many bytes of other requests are in memory; send it again"
        return RequestRefused(503, "Overloaded", _CLOSE, (b"retry-after", b"1"), message=message)
    return RequestRefused(408, "RequestTimeout", _CLOSE, message="the body did not arrive in time")


def _too_large(body_max: int) -> RequestRefused:
    message = f"the request is larger than {body_max} bytes"
    return RequestRefused(413, "RequestEntityTooLarge", _CLOSE, message=message)
