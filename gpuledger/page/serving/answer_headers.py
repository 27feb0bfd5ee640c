"""Answer headers: what a browser may do with an answer, its version, and its refresh."""

import hashlib
from collections.abc import Sequence
from typing import Final

POLICY: Final = "; ".join(
    (
        "default-src 'none'",
        "style-src 'self'",
        "img-src 'self'",
        "form-action 'self'",
        "frame-ancestors 'none'",
        "base-uri 'none'",
    )
)
"""No script, no frame, nothing of another host."""

SECURITY: Final = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
    "Cache-Control": "private, no-cache",
    "Vary": "Authorization, Cookie",
}

REFRESH_SECONDS: Final = 30
"""Interval at which a page of the present is loaded again."""


def tag_of(position: int, body: bytes) -> str:
    """Return the ETag of an answer: the position of the log, and a hash of everything shown.

    The hash covers what a page shows beside the log: the viewer, live data and the version.
    """
    return f'"{position}-{hashlib.sha256(body).hexdigest()[:16]}"'


def is_known(tag: str, given: Sequence[str]) -> bool:
    """Return whether the values of If-None-Match have a tag."""
    known = {text.strip().removeprefix("W/") for value in given for text in value.split(",")}
    return tag in known
