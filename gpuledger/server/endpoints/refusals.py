"""Refusals of the endpoints of the live ledger, in the form of `/v1`."""

from typing import Final

import msgspec
from starlette.responses import Response

from ledger.runtime.http.json_endpoint import RequestRefused
from projections.api.query_parameters import InvalidParameter

_AGAIN: Final = {"retry-after": "1"}


def refused(status: int, message: str, **details: str | int) -> Response:
    """Return the answer to a refused request; `details` name what it is about.

    With 429 and 503 the client may try again after a second.
    """
    body = msgspec.json.encode({"error": {"message": message, **details}})
    headers = _AGAIN if status in (429, 503) else None
    return Response(body, status, headers, media_type="application/json")


def invalid_field(message: str, field: str, line: int = 0) -> Response:
    """Return the answer to an invalid body; an empty `field` and a `line` of 0 are unknown."""
    details: dict[str, str | int] = {"field": field} if field else {}
    return refused(400, message, **(details | ({"line": line} if line else {})))


def refused_body(error: RequestRefused) -> Response:
    """Return the answer to a request whose body is not read to its end."""
    answer = refused(error.status, str(error), field="body")
    for name, value in error.headers:
        answer.headers[name.decode()] = value.decode()
    return answer


def invalid_parameter(error: InvalidParameter) -> Response:
    """Return the answer to a request with an invalid parameter of the query."""
    return refused(400, error.message, parameter=error.parameter, value=error.value)
