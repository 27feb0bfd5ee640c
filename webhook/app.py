"""The HTTP side of admission: `POST /admission/mutate` and `POST /admission/validate`.

Plain ASGI endpoints, because a review is bytes in and bytes out and nothing else of a web
framework is needed on the way. Whatever arrives, the answer is an AdmissionReview, or a 4xx with
a JSON body that names what was wrong; nothing waits longer than the policy's deadline.
"""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Final, Protocol

import msgspec
from starlette.applications import Starlette
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from webhook.mutating import Mutating
from webhook.policy import Policy
from webhook.review import BadReview, Request, Response, decode, encode
from webhook.validating import Validating

MUTATE_PATH: Final = "/admission/mutate"
VALIDATE_PATH: Final = "/admission/validate"

_JSON: Final = (b"content-type", b"application/json")
_CLOSE: Final = (b"connection", b"close")
"""Whoever has not sent all of a body gets no second request on that connection."""


class Handler(Protocol):
    """Answers reviews."""

    async def answer(self, request: Request, until: float) -> Response:
        """Return the answer to a review, by loop time `until`. Raises BadReview."""
        ...


Took = Callable[[str, float], None]
"""Told which webhook answered, `mutate` or `validate`, and how many seconds that took."""


class Problem(msgspec.Struct, frozen=True, omit_defaults=True):
    """The body of a 4xx: what was wrong and, inside a review, in which field."""

    error: str
    message: str
    field: str = ""


class Endpoint:
    """One webhook as an ASGI application. `policy` gives the body's bound and the deadline."""

    def __init__(
        self, handler: Handler, policy: Policy, took: Callable[[float], None] = lambda _: None
    ) -> None:
        """Serve the handler's answers, and tell how many seconds each request took."""
        self._handler = handler
        self._policy = policy
        self._took = took

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        clock = asyncio.get_running_loop().time
        began = clock()
        try:
            await self._serve(scope, receive, send, began + self._policy.deadline)
        finally:
            self._took(clock() - began)

    async def _serve(self, scope: Scope, receive: Receive, send: Send, until: float) -> None:
        try:
            _check(scope, self._policy.body_max)
            body = await read_body(receive, self._policy.body_max, until)
            response = await self._handler.answer(decode(body), until)
        except BadReview as error:
            problem = Problem("BadReview", error.message, error.field)
            await _send(send, 400, msgspec.json.encode(problem))
        except Refused as refused:
            await _send(send, refused.status, refused.body, refused.headers)
        except ClientGone:
            return
        else:
            await _send(send, 200, encode(response))


def routes(
    mutating: Mutating, validating: Validating, policy: Policy, took: Took = lambda *_: None
) -> list[Route]:
    """Return the routes of admission, to be mounted beside others."""
    return [
        Route(MUTATE_PATH, Endpoint(mutating, policy, partial(took, "mutate"))),
        Route(VALIDATE_PATH, Endpoint(validating, policy, partial(took, "validate"))),
    ]


def application(mutating: Mutating, validating: Validating, policy: Policy) -> Starlette:
    """Return an application that serves admission and nothing else."""
    return Starlette(routes=routes(mutating, validating, policy))


class ClientGone(Exception):
    """Nobody waits for the answer any more."""


class Refused(Exception):
    """The HTTP request is answered with a 4xx: `status`, and a JSON `body` with the message."""

    def __init__(
        self, status: int, error: str, message: str, *headers: tuple[bytes, bytes]
    ) -> None:
        super().__init__(message)
        self.status = status
        self.body = msgspec.json.encode(Problem(error, message))
        self.headers = headers


def _check(scope: Scope, body_max: int) -> None:
    """Refuse what need not be read."""
    if scope["method"] != "POST":
        message = f"{scope['method']} is not supported here, send POST"
        raise Refused(405, "MethodNotAllowed", message, (b"allow", b"POST"))
    headers = dict(scope["headers"])
    kind = headers.get(b"content-type", b"").partition(b";")[0].strip().lower()
    if kind != b"application/json":
        text = kind.decode("latin-1") or "nothing"
        message = f"content-type is {text}, send application/json"
        raise Refused(415, "UnsupportedMediaType", message)
    length = headers.get(b"content-length", b"")
    if length.isdigit() and len(length) < 20 and int(length) > body_max:
        raise _too_large(body_max)


async def read_body(receive: Receive, body_max: int, until: float) -> bytes:
    """Read a request's body, as far as it may reach and until loop time `until`.

    Raises Refused and ClientGone.
    """
    parts: list[bytes] = []
    size, more = 0, True
    try:
        async with asyncio.timeout_at(until):
            while more and size <= body_max:
                message = await receive()
                if message["type"] == "http.disconnect":
                    raise ClientGone
                parts.append(message.get("body", b""))
                size += len(parts[-1])
                more = message.get("more_body", False)
    except TimeoutError as error:
        raise Refused(408, "RequestTimeout", "the body did not arrive in time", _CLOSE) from error
    if size > body_max:
        raise _too_large(body_max)
    return b"".join(parts)


def _too_large(body_max: int) -> Refused:
    message = f"the review is larger than {body_max} bytes"
    return Refused(413, "RequestEntityTooLarge", message, _CLOSE)


async def _send(
    send: Send, status: int, body: bytes, headers: tuple[tuple[bytes, bytes], ...] = ()
) -> None:
    length = (b"content-length", str(len(body)).encode())
    await send(
        {"type": "http.response.start", "status": status, "headers": [_JSON, length, *headers]}
    )
    await send({"type": "http.response.body", "body": body})
