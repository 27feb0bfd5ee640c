"""Stamps: what joins the attempts of one API request.

The API server may try one CREATE several times, each time with another uid and, for a generated
name, another key. The mutating webhook runs once per request and leaves a stamp; the validating
webhook finds it on every attempt, so a later one can take the place of an earlier one.

A stamp is `nonce.time.signature`, time in seconds of Unix time, signed with a key that all
replicas share over what it vouches for. A stamp on another namespace, user or demand, an old one
and a forged one are all the same: none.
"""

import hmac
import math
import secrets
import time
from collections.abc import Callable
from typing import Final

import msgspec

from ledger.core.amounts import Amounts

ANNOTATION: Final = "gpuledger.io/stamp"
KEY_BYTES_MIN: Final = 32
AGE_MAX: Final = 60.0
"""Seconds: longer than any API request may take, and as far as replicas' clocks may differ."""

_NONCE_CHARACTERS_MAX: Final = 64
_TIME_DIGITS_MAX: Final = 12


class Subject(msgspec.Struct, frozen=True, array_like=True):
    """What a stamp vouches for."""

    cluster: str
    resource: str
    namespace: str
    username: str
    demand: Amounts


class Stamps:
    """Makes and verifies stamps."""

    def __init__(
        self,
        key: bytes,
        *,
        clock: Callable[[], float] = time.time,
        nonce: Callable[[], str] = lambda: secrets.token_hex(8),
        age_max: float = AGE_MAX,
    ) -> None:
        """Sign with `key`. Raises ValueError when it is shorter than 32 bytes."""
        if len(key) < KEY_BYTES_MIN:
            raise ValueError(
                f"the stamp key has {len(key)} bytes and needs at least {KEY_BYTES_MIN}:"
                " make one with `openssl rand -hex 32`"
            )
        self._key = key
        self._clock = clock
        self._nonce = nonce
        self._age_max = age_max
        self._encoder = msgspec.json.Encoder(order="sorted")

    def make(self, subject: Subject) -> str:
        """Return a fresh stamp for a request about `subject`."""
        nonce, seconds = self._nonce(), math.floor(self._clock())
        return f"{nonce}.{seconds}.{self._sign(subject, nonce, str(seconds))}"

    def nonce_of(self, stamp: str, subject: Subject) -> str:
        """Return the nonce of a stamp that is ours, fresh and about `subject`, else nothing."""
        nonce, _, rest = stamp.partition(".")
        seconds, _, signature = rest.partition(".")
        if len(nonce) > _NONCE_CHARACTERS_MAX:
            return ""
        if not (seconds.isascii() and seconds.isdigit() and len(seconds) <= _TIME_DIGITS_MAX):
            return ""
        expected = self._sign(subject, nonce, seconds)
        if not hmac.compare_digest(expected.encode(), signature.encode()):
            return ""
        return nonce if abs(self._clock() - int(seconds)) <= self._age_max else ""

    def _sign(self, subject: Subject, nonce: str, seconds: str) -> str:
        text = self._encoder.encode((subject, nonce, seconds))
        return hmac.digest(self._key, text, "sha256").hex()
