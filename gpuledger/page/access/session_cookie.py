"""Session cookie: the token of a login, sealed, so that only this service can read it.

The cookie holds the token itself and no reference, because replicas share no memory. It is
encrypted, because a token is good for the API server, too: a stolen cookie is good for the pages
only, and only until it ends. The browser keeps it from scripts and from requests of other sites.
"""

import hashlib
import secrets
import time
import zlib
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable
from typing import Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from ledger.runtime.http.v1_access import TOKEN_BYTES_MAX

NAME: Final = "__Host-gpuledger-session"
"""The prefix makes browsers refuse the cookie from another host, from a path, or without TLS."""

VALUE_CHARACTERS_MAX: Final = 3_800
"""Longest value; browsers keep 4,096 bytes of a cookie with its name and attributes."""

ATTRIBUTES: Final = "Path=/; Secure; HttpOnly; SameSite=Strict"

_NONCE_BYTES: Final = 12
_TIME_BYTES: Final = 8
_PURPOSE: Final = b"gpuledger page session 1"


class TokenTooLong(ValueError):
    """The sealed token does not fit into a cookie."""


class SessionCookies:
    """Seals tokens and opens them again; a session ends after `seconds`."""

    def __init__(
        self,
        secret: Callable[[], bytes],
        *,
        seconds: float,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """`secret` returns the key material that all replicas have; when it changes, all sessions
        end.
        """
        self._secret, self.seconds, self._clock = secret, seconds, clock

    def seal(self, token: str) -> str:
        """Return the cookie's value for a token. Raises TokenTooLong."""
        nonce = secrets.token_bytes(_NONCE_BYTES)
        issued = int(self._clock()).to_bytes(_TIME_BYTES, "big")
        sealed = self._box().encrypt(nonce, issued + zlib.compress(token.encode(), 9), _PURPOSE)
        value = urlsafe_b64encode(nonce + sealed).decode()
        if len(value) > VALUE_CHARACTERS_MAX:
            raise TokenTooLong(
                f"the token has {len(token)} characters, which is too long for a cookie"
            )
        return value

    def open(self, value: str) -> str:
        """Return the token of a cookie, "" when it has ended or is not one of this service."""
        if len(value) > VALUE_CHARACTERS_MAX:
            return ""
        try:
            raw = urlsafe_b64decode(value.encode())
            opened = self._box().decrypt(raw[:_NONCE_BYTES], raw[_NONCE_BYTES:], _PURPOSE)
        except (ValueError, InvalidTag):
            return ""
        age = self._clock() - int.from_bytes(opened[:_TIME_BYTES], "big")
        if age >= self.seconds:
            return ""
        unpacked = zlib.decompressobj().decompress(opened[_TIME_BYTES:], TOKEN_BYTES_MAX)
        return unpacked.decode()

    def _box(self) -> AESGCM:
        return AESGCM(hashlib.sha256(_PURPOSE + b"\0" + self._secret()).digest())


def set_cookie(name: str, value: str, seconds: float) -> str:
    """Return the value of the header Set-Cookie; `seconds` of 0 deletes the cookie."""
    return f"{name}={value}; Max-Age={int(seconds)}; {ATTRIBUTES}"
