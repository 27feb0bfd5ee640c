"""Refusals: what the denials stream keeps, so that "why was I denied last Tuesday" has an answer.

Best effort and age-limited by design: a refusal promises nothing, so losing one loses an
explanation and never room.
"""

from typing import Final

import msgspec

from ledger.core.amounts import Amounts
from ledger.core.denials import Denial


class Refusal(msgspec.Struct, frozen=True):
    """One denied request: when (µs of Unix time), at which position, who asked for what."""

    time: int
    position: int
    namespace: str
    key: str
    uid: str
    actor: str
    demand: Amounts
    denial: Denial


_encoder: Final = msgspec.msgpack.Encoder()
_decoder: Final = msgspec.msgpack.Decoder(Refusal)


def encode(refusal: Refusal) -> bytes:
    """Encode a refusal for the denials stream."""
    return _encoder.encode(refusal)


def decode(payload: bytes) -> Refusal:
    """Decode a refusal. Raises msgspec.MsgspecError when the payload is none."""
    return _decoder.decode(payload)
