"""Form body: the fields of a POST, bounded in size, number and time."""

import asyncio
from collections.abc import Mapping
from typing import Final
from urllib.parse import parse_qsl

from starlette.datastructures import Headers
from starlette.requests import ClientDisconnect, Request

from gpuledger.page.page_errors import PageError

BYTES_MAX: Final = 1 << 20
"""Largest body; a manifest of 340 KiB fits even if every character is escaped."""

FIELDS_MAX: Final = 32
SECONDS: Final = 5.0
"""Deadline of a body's arrival."""

_TYPE: Final = "application/x-www-form-urlencoded"


async def read_form(request: Request, bytes_max: int = BYTES_MAX) -> Mapping[str, str]:
    """Return the fields of a form of at most `bytes_max`. Raises PageError 400, 403, 413."""
    _require_same_site(request.headers)
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != _TYPE:
        raise PageError(400, "The body is not a form.", remedy=f"Send the content type {_TYPE}.")
    try:
        async with asyncio.timeout(SECONDS):
            body = await _body(request, bytes_max)
    except TimeoutError:
        raise PageError(400, f"The form did not arrive within {SECONDS:g} s.") from None
    except ClientDisconnect:
        raise PageError(400, "The connection ended within the form.") from None
    try:
        return dict(parse_qsl(body.decode(), keep_blank_values=True, max_num_fields=FIELDS_MAX))
    except ValueError as error:
        raise PageError(400, f"The form is invalid: {error}.") from None


async def _body(request: Request, bytes_max: int) -> bytes:
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > bytes_max:
            raise PageError(
                413,
                f"The form has more than {bytes_max:,} bytes.",
                remedy="Give one object at a time, or use the command.",
            )
    return bytes(body)


def _require_same_site(headers: Headers) -> None:
    """Raise PageError 403 for a form of another site, as browsers mark it."""
    origin, host = headers.get("origin"), headers.get("host", "")
    site = headers.get("sec-fetch-site")
    is_other = site not in (None, "same-origin", "none") or (
        origin is not None and origin.partition("://")[2] != host
    )
    if is_other:
        raise PageError(
            403, "The form was sent from another site.", remedy="Open the page here and send again."
        )
