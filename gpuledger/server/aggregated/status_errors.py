"""Status errors: refusals that both Kubernetes clients and clients of `/v1` read.

A body is a Kubernetes Status with one more key, `error`, which has the fields of `/v1`.
"""

from collections.abc import Mapping
from typing import Any, Final

import msgspec
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

HELD_BYTES_MAX: Final = 64 * 1024
"""Bytes of a refusal's body that are read; the rest is left out."""

_REASONS: Final = {
    400: "BadRequest",
    401: "Unauthorized",
    403: "Forbidden",
    404: "NotFound",
    405: "MethodNotAllowed",
    408: "Timeout",
    413: "RequestEntityTooLarge",
    415: "UnsupportedMediaType",
    429: "TooManyRequests",
    500: "InternalError",
    503: "ServiceUnavailable",
    504: "Timeout",
}

# A connection without the proxy's certificate may be older than the trust in its CA.
_HEADERS: Final = {401: {"connection": "close"}, 429: {"retry-after": "1"}}


class Refusal(Exception):
    """A request that is refused, with the HTTP status and one sentence with its remedy."""

    def __init__(self, status: int, message: str, **details: str) -> None:
        """`details` name the parameter and its value."""
        super().__init__(message)
        self.status, self.details = status, details

    def response(self) -> Response:
        """Return the answer."""
        headers = _HEADERS.get(self.status)
        body = status_body(self.status, {"message": str(self), **self.details})
        return Response(body, self.status, headers, media_type="application/json")


def status_body(status: int, error: Mapping[str, Any]) -> bytes:
    """Return a Status with the message of a refusal, and the refusal as in `/v1`."""
    named = error.get("parameter") or error.get("field") or ""
    message = str(error.get("message", ""))
    return msgspec.json.encode(
        {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": f"{named}: {message}" if named else message,
            "reason": _REASONS.get(status, ""),
            "code": status,
            "error": error,
        }
    )


async def call_with_status(app: ASGIApp, scope: Scope, receive: Receive, send: Send) -> None:
    """Call an application, and replace the body of a refusal by a Status."""
    await app(scope, receive, _Refusals(send))


class _Refusals:
    """Passes messages on, and holds those of a refusal until its body is complete."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self._start: Message | None = None
        self._body = b""

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start" and message["status"] >= 400:
            self._start = message
            return
        if self._start is None:
            await self._send(message)
            return
        self._body = (self._body + message.get("body", b""))[:HELD_BYTES_MAX]
        if not message.get("more_body", False):
            await self._refuse(self._start)

    async def _refuse(self, start: Message) -> None:
        body = status_body(start["status"], _error_in(self._body))
        kept = [
            (name, value)
            for name, value in start["headers"]
            if name.lower() not in (b"content-length", b"content-type")
        ]
        headers = [
            *kept,
            (b"content-type", b"application/json"),
            (b"content-length", str(len(body)).encode()),
        ]
        await self._send({**start, "headers": headers})
        await self._send({"type": "http.response.body", "body": body})


def _error_in(body: bytes) -> dict[str, Any]:
    """Return the error of a `/v1` body; another body is a message."""
    try:
        error = msgspec.json.decode(body, type=dict[str, Any])["error"]
        return error if isinstance(error, dict) else {"message": str(error)}
    except (msgspec.MsgspecError, UnicodeDecodeError, KeyError):
        return {"message": body.decode(errors="replace")}
