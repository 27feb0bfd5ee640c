"""Reads request bodies within bounds of size and time.

For endpoints that are plain ASGI: bytes in, bytes out. A refusal is an HTTP status with a JSON
body that names the error.
"""

import asyncio
import zlib
from typing import Final

import msgspec
from starlette.types import Receive, Scope, Send

from ledger.runtime.http.body_budget import BudgetShare

_JSON: Final = (b"content-type", b"application/json")
_CLOSE: Final = (b"connection", b"close")
"""Header of answers to incomplete bodies: the connection takes no second request."""

_GZIP: Final = 16 + zlib.MAX_WBITS
"""For zlib: expect the header of gzip."""


class ClientGone(Exception):
    """The client has closed the connection."""


class RequestProblem(msgspec.Struct, frozen=True, omit_defaults=True):
    """The body of a 4xx: what was wrong and in which field."""

    error: str
    message: str
    field: str = ""


class RequestRefused(Exception):
    """The HTTP request is answered with a 4xx: `status`, and a JSON `body` with the message."""

    def __init__(
        self, status: int, error: str, *headers: tuple[bytes, bytes], message: str
    ) -> None:
        super().__init__(message)
        self.status = status
        self.body = msgspec.json.encode(RequestProblem(error, message))
        self.headers = headers


def check(scope: Scope, body_max: int) -> None:
    """Refuse what need not be read: only JSON is posted, of so many bytes. Raises
    RequestRefused."""
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


async def read(receive: Receive, body_max: int, until: float, held: BudgetShare) -> bytes:
    """Read a request's body, as far as it may reach and until loop time `until`.

    `held` is what it takes of the bytes that all bodies may take together. Raises RequestRefused
    and ClientGone.
    """
    parts: list[bytes] = []
    size, more = 0, True
    try:
        async with asyncio.timeout_at(until) as held.timeout:
            while more and size <= body_max:
                message = await receive()
                if message["type"] == "http.disconnect":
                    raise ClientGone
                part = message.get("body", b"")
                more = message.get("more_body", False)
                await held.take(len(part), more=more)
                parts.append(part)
                size += len(part)
    except TimeoutError as error:
        raise _late(held, whole=not more) from error
    finally:
        held.timeout = None
        held.arrived()
    if size > body_max:
        raise _too_large(body_max)
    return b"".join(parts)


async def inflated(
    scope: Scope, body: bytes, body_max: int, until: float, held: BudgetShare
) -> bytes:
    """Return a body as it was before it was compressed, by gzip or not at all. Raises
    RequestRefused.

    It is inflated beside the event loop: a few bytes can become very many. The result is
    taken from `held` first, until loop time `until`.
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
        raise _late(held, whole=True) from error
    found = await asyncio.to_thread(_inflate, body, body_max)
    held.give_back(body_max - len(found))
    return found


async def answer(
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
        found = machine.decompress(body, body_max + 1)
    except zlib.error as error:
        raise RequestRefused(400, "BadRequest", message=f"the body is not gzip: {error}") from error
    if len(found) > body_max:
        raise _too_large(body_max)
    if not machine.eof:
        raise RequestRefused(
            400, "BadRequest", message="the body ends in the middle of its gzip stream"
        )
    return found


def _late(held: BudgetShare, *, whole: bool) -> RequestRefused:
    if whole or held.gave_way:
        message = "too many bytes of other requests are in memory; send it again"
        return RequestRefused(503, "Overloaded", _CLOSE, (b"retry-after", b"1"), message=message)
    return RequestRefused(408, "RequestTimeout", _CLOSE, message="the body did not arrive in time")


def _too_large(body_max: int) -> RequestRefused:
    message = f"the request is larger than {body_max} bytes"
    return RequestRefused(413, "RequestEntityTooLarge", _CLOSE, message=message)
