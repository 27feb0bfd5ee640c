"""Assumed placement messages: their format, and which messages of other replicas are refused.

Any client that may publish on the subject can write anything there, and an extender of another
version may write something else. A message that is not an assumed placement, or that has amounts
that no card can have, is refused as a whole, counted and logged.
"""

import math
from collections.abc import Callable
from typing import Final

import msgspec
import structlog

from ledger.core.model.amounts import AMOUNT_MAX
from ledger.core.model.card_bookings import Booking
from ledger.runtime.counter_protocol import Count, uncounted

WARNING_SECONDS: Final = 30.0
"""Shortest time between two warnings about refused messages."""

_log: Final = structlog.get_logger("extender")


class Assumption(msgspec.Struct, frozen=True, array_like=True):
    """A pod, by its names in the ledger, and its probable bookings on the cards of a node.

    `alone` are the cards that it wants for itself.
    """

    cluster: str
    namespace: str
    key: str
    uid: str
    node: str
    bookings: dict[str, Booking]
    alone: list[str]


_decoder: Final = msgspec.msgpack.Decoder(Assumption)

encode: Final = msgspec.msgpack.Encoder().encode
"""Returns the message of an assumed placement."""


class AssumptionReader:
    """Reads the messages of other replicas."""

    def __init__(self, *, clock: Callable[[], float], count: Count = uncounted) -> None:
        """`clock` is the time of the loop in seconds."""
        self._clock, self._count = clock, count
        self._refused, self._silent_until = 0, -math.inf

    def read(self, message: bytes) -> Assumption | None:
        """Return the assumed placement of a message; None if it is refused."""
        try:
            assumption = _decoder.decode(message)
            _check_amounts(assumption)
        except (msgspec.MsgspecError, ValueError, RecursionError) as error:
            self._refuse(error)
            return None
        return assumption

    def _refuse(self, why: Exception) -> None:
        """Count a refused message, and log the number of them from time to time."""
        self._refused += 1
        self._count("hints_refused_total")
        if self._clock() >= self._silent_until:
            self._silent_until = self._clock() + WARNING_SECONDS
            _log.warning("hint_refused", refused=self._refused, reason=str(why))


def _check_amounts(assumption: Assumption) -> None:
    """Refuse amounts that no card can have. Raises ValueError."""
    for uuid, booking in assumption.bookings.items():
        if not all(0 <= amount <= AMOUNT_MAX for amount in booking):
            raise ValueError(f"{tuple(booking)} of card {uuid}")
