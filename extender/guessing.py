"""Guessing: which cards pods are probably on their way to, here and with other extenders.

Between the moment a pod is scored and the moment the ledger has placed it, its cards look free. Who
scored it guesses where it goes, and tells the other extenders, so that they do not send theirs to
the same cards. Guesses only steer filter and prioritize; the ledger decides without them.
"""

import math
from collections.abc import Callable
from typing import Final

import msgspec

from extender.asking import Asked
from extender.inventory import Inventory
from ledger.core.cards import Booking, Parts, booked, exclusive_on

GUESS_SECONDS: Final = 3.0
"""How long a pod is taken to be on its way to the node that was best for it."""

PLACING_SECONDS: Final = 30.0
"""How long the cards that a bind has chosen are taken; the ledger says sooner what became of it."""

CONTESTED_SECONDS: Final = 2.0
"""How long after others placed a pod, or were about to, it is thought that there will be more."""


class Guess(msgspec.Struct, frozen=True, array_like=True):
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


Tell = Callable[[bytes], None]
"""Tells other extenders a guess, perhaps."""

_encoder: Final = msgspec.msgpack.Encoder()
_decoder: Final = msgspec.msgpack.Decoder(Guess)


def untold(_: bytes) -> None:
    """Tell nobody."""


class Guessing:
    """Guesses about the pods of one inventory, laid over it."""

    def __init__(
        self, inventory: Inventory, clock: Callable[[], float], tell: Tell = untold
    ) -> None:
        """Tell others through `tell`; `clock` is the time of the loop in seconds."""
        self._inventory, self._clock, self._tell = inventory, clock, tell
        self._surprises = inventory.surprises
        self._contested_until = -math.inf

    def guess(self, asked: Asked, node: str, parts: Parts, seconds: float) -> None:
        """Take a pod to be on its way to these cards, for so long, and tell others."""
        guess = Guess(
            self._inventory.cluster,
            asked.namespace,
            asked.key,
            asked.uid,
            node,
            booked(parts),
            sorted(exclusive_on(parts)),
        )
        if self._lay(guess, seconds):
            self._tell(_encoder.encode(guess))

    def forget(self, asked: Asked) -> None:
        """Take a pod to be on its way nowhere; others forget it by themselves."""
        self._inventory.overlay.drop(asked.uid)

    def hear(self, hint: bytes) -> None:
        """Take over what another extender guesses; what cannot be read, or is over, is nothing."""
        try:
            guess = _decoder.decode(hint)
        except msgspec.MsgspecError:
            return
        if guess.cluster != self._inventory.cluster:
            return
        self._contested_until = self._clock() + CONTESTED_SECONDS
        if not self._inventory.has_placed(guess.namespace, guess.key, guess.uid):
            self._lay(guess, GUESS_SECONDS)

    def contested(self) -> bool:
        """Return whether others place pods, too, or have done so lately."""
        if self._surprises != self._inventory.surprises:
            self._surprises = self._inventory.surprises
            self._contested_until = self._clock() + CONTESTED_SECONDS
        return self._clock() < self._contested_until

    def _lay(self, guess: Guess, seconds: float) -> bool:
        """Lay a guess over the inventory; return whether its node is known."""
        row = self._inventory.rows.get(guess.node)
        if row is None:
            return False
        uuids = self._inventory.arrays.uuids[row]
        at = {uuid: column for column, uuid in enumerate(uuids) if uuid}
        bookings = {at[uuid]: booking for uuid, booking in guess.bookings.items() if uuid in at}
        alone = {at[uuid] for uuid in guess.alone if uuid in at}
        until = self._clock() + seconds
        self._inventory.overlay.add(guess.uid, row, bookings, alone, until)
        return True
