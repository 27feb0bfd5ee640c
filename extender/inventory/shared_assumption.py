"""A guess as extenders tell it to one another, and what of it is believed.

Whoever may publish on a subject of NATS may write anything there, and an extender of another
version something else. What cannot be a guess is refused as a whole.
"""

from typing import Final

import msgspec

from ledger.core.model.amounts import AMOUNT_MAX
from ledger.core.model.cards import Booking


class BadAssumption(Exception):
    """A hint is no guess; the message says why."""


class Assumption(msgspec.Struct, frozen=True, array_like=True):
    """A pod, by its names in the ledger, and what of which cards of a node it probably takes.

    `alone` are the cards that it wants for itself.
    """

    cluster: str
    namespace: str
    key: str
    uid: str
    node: str
    bookings: dict[str, Booking]
    alone: list[str]

    def __post_init__(self) -> None:
        """Refuse amounts that no card can have. Raises ValueError."""
        for uuid, booking in self.bookings.items():
            if not all(0 <= amount <= AMOUNT_MAX for amount in booking):
                raise ValueError(f"{tuple(booking)} of card {uuid}")


_encoder: Final = msgspec.msgpack.Encoder()
_decoder: Final = msgspec.msgpack.Decoder(Assumption)


def encode(guess: Assumption) -> bytes:
    """Return a guess as it is told."""
    return _encoder.encode(guess)


def decode(hint: bytes) -> Assumption:
    """Return what somebody told. Raises Unreadable."""
    try:
        return _decoder.decode(hint)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise BadAssumption(str(error)) from error
