"""Direct request: one request without ASGI, from its head to the bytes of its answer.

The answer has the same bytes as that of the application. Only the one to a request that met a
defect also names the end of its connection.
"""

from collections.abc import Iterable, Sequence
from typing import Any, Final

from uvicorn.protocols.http.httptools_impl import STATUS_LINE

from ledger.runtime.http.direct_endpoints import DirectEndpoint
from ledger.runtime.http.json_endpoint import BegunRequest, JsonEndpoint, Reply
from ledger.runtime.http.loopback_access import FORWARDED, names_loopback

Header = tuple[bytes, bytes]

INTERNAL_ERROR: Final = Reply(500, b"Internal Server Error")
"""The answer to a request that met a defect; the only one that is text."""

_ELSEWHERE: Final = frozenset((b"expect", b"upgrade", b"transfer-encoding", b"content-encoding"))
"""Headers of requests that the application serves."""

_FORWARDED: Final = frozenset(name.encode() for name in FORWARDED)

_LENGTH_DIGITS_MAX: Final = 19

_JSON: Final = b"content-type: application/json\r\ncontent-length: %d\r\n"
_TEXT: Final = b"content-length: %d\r\ncontent-type: text/plain; charset=utf-8\r\n"
_CLOSE: Final = (b"connection", b"close")


def plain_length(headers: Sequence[Header], usable: DirectEndpoint) -> int:
    """Return the length of the body of a plain request, 0 if the application serves the request."""
    fields = dict(headers)
    if fields.get(b"content-type") != b"application/json" or not _ELSEWHERE.isdisjoint(fields):
        return 0
    digits = fields.get(b"content-length", b"")
    if not digits.isdigit() or len(digits) > _LENGTH_DIGITS_MAX:
        return 0
    if usable.by_loopback_host and not _names_loopback(headers):
        return 0
    length = int(digits)
    return length if length <= usable.endpoint.limits.bytes_max else 0


def _names_loopback(headers: Sequence[Header]) -> bool:
    """Return whether the only Host header addresses this machine as loopback, without a proxy."""
    hosts = [value for name, value in headers if name == b"host"]
    if not _FORWARDED.isdisjoint(name for name, _ in headers):
        return False
    return len(hosts) == 1 and names_loopback(hosts[0].decode("latin-1"))


class _NoReader:
    """The event by which uvicorn wakes the reader of a body."""

    def set(self) -> None:
        """Wake nothing, because the connection itself reads the body."""


class DirectRequest:
    """One request, with the attributes that uvicorn reads of the request of a connection.

    `held` is its share of the budget of bodies until the answer. `until` is the loop time at which
    the answer is due.
    """

    __slots__ = (
        "_began",
        "_left",
        "_parts",
        "disconnected",
        "endpoint",
        "held",
        "keep_alive",
        "response_complete",
        "until",
    )

    message_event: Final = _NoReader()

    def __init__(
        self, endpoint: JsonEndpoint[Any, Any], length: int, *, now: float, keep_alive: bool
    ) -> None:
        """Begin at loop time `now` a request whose body has `length` bytes."""
        self.endpoint, self.keep_alive = endpoint, keep_alive
        self.until = now + endpoint.limits.seconds
        self.held = endpoint.limits.budget.holding()
        self.response_complete = self.disconnected = False
        self._began, self._left = now, length
        self._parts: list[bytes] = []

    @property
    def body(self) -> bytes:
        """The bytes that have arrived."""
        return self._parts[0] if len(self._parts) == 1 else b"".join(self._parts)

    @property
    def begun(self) -> BegunRequest:
        """The request for another reader; its `held` is then released by that."""
        return BegunRequest(self.held, self._began)

    def takes(self, part: bytes) -> bool:
        """Add a part of the body; False if the budget has no room for it now."""
        self._parts.append(part)
        self._left -= len(part)
        return self.held.takes_at_once(len(part), more=self._left > 0)

    def end(self, now: float) -> None:
        """Release the budget, and report the duration."""
        self.response_complete = True
        self._parts.clear()
        self.held.end()
        self.endpoint.observe_seconds(now - self._began)

    def answer_bytes(self, reply: Reply, default_headers: Iterable[Header]) -> bytes:
        """Return the whole answer; `keep_alive` is False if it ends the connection."""
        status, body, headers = reply
        if _CLOSE in headers:
            self.keep_alive = False
        elif not self.keep_alive:
            headers = (*headers, _CLOSE)
        kind = (_TEXT if reply is INTERNAL_ERROR else _JSON) % len(body)
        lines = [STATUS_LINE[status]]
        for name, value in default_headers:
            lines += (name, b": ", value, b"\r\n")
        lines.append(kind)
        for name, value in headers:
            lines += (name, b": ", value, b"\r\n")
        lines += (b"\r\n", body)
        return b"".join(lines)
