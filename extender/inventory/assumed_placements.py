"""Guessing: which cards pods are probably on their way to, here and with other extenders.

Between the moment a pod is scored and the moment the ledger has placed it, its cards look free. Who
scored it guesses where it goes, and tells the other extenders, so that they do not send theirs to
the same cards. Guesses only steer filter and prioritize; the ledger decides without them.
"""

import math
from collections.abc import Callable
from typing import Final

import structlog

from extender.inventory import shared_assumption as guesses
from extender.inventory.inventory import ClusterInventory
from extender.inventory.shared_assumption import Assumption
from extender.scheduler_api.scheduling_request import SchedulingRequest
from ledger.core.model.cards import Parts, booked, exclusive_on
from ledger.runtime.counter_protocol import Count, uncounted

ASSUMED_SECONDS: Final = 8.0
"""How long a pod is taken to be on its way to the node that was best for it.

In a crowded cluster it may be seconds until its bind, which says itself where it goes. A guess that
ends before loses binds: of 3,000 pods on two busy cores 0.6 to 1.3 % with 3 s, 0.3 to 0.5 % so.
"""

PLACING_SECONDS: Final = 30.0
"""How long the cards that a bind has chosen are taken; the ledger says sooner what became of it."""

CONTESTED_SECONDS: Final = 2.0
"""How long after others placed a pod, or were about to, it is thought that there will be more."""

WARNING_SECONDS: Final = 30.0
"""Shortest time between two warnings that somebody tells what is no guess."""

Publish = Callable[[bytes], None]
"""Tells other extenders a guess, perhaps."""

_logger: Final = structlog.get_logger("extender.inventory.assumed_placements")


def unpublished(_: bytes) -> None:
    """Tell nobody."""


class AssumedPlacements:
    """Guesses about the pods of one inventory, laid over it."""

    def __init__(
        self,
        inventory: ClusterInventory,
        clock: Callable[[], float],
        tell: Publish = unpublished,
        count: Count = uncounted,
    ) -> None:
        """Tell others through `tell`; `clock` is the time of the loop in seconds."""
        self._inventory, self._clock = inventory, clock
        self._tell, self._count = tell, count
        self._surprises = inventory.surprises
        self._contested_until = -math.inf
        self._refused, self._silent_until = 0, -math.inf

    def guess(self, asked: SchedulingRequest, node: str, parts: Parts, seconds: float) -> None:
        """Take a pod to be on its way to these cards, for so long, and tell others."""
        guess = Assumption(
            self._inventory.cluster,
            asked.namespace,
            asked.key,
            asked.uid,
            node,
            booked(parts),
            sorted(exclusive_on(parts)),
        )
        if self._lay(guess, seconds):
            self._tell(guesses.encode(guess))

    def forget(self, asked: SchedulingRequest) -> None:
        """Take a pod to be on its way nowhere; others forget it by themselves."""
        self._inventory.overlay.drop(asked.uid)

    def hear(self, hint: bytes) -> None:
        """Take over what another extender guesses; what is over, or cannot be true, is nothing."""
        try:
            guess = guesses.decode(hint)
        except guesses.BadAssumption as error:
            self._refuse(error)
            return
        if guess.cluster != self._inventory.cluster:
            return
        self._contested_until = self._clock() + CONTESTED_SECONDS
        if not self._inventory.has_placed(guess.namespace, guess.key, guess.uid):
            self._lay(guess, ASSUMED_SECONDS)

    def contested(self) -> bool:
        """Return whether others place pods, too, or have done so lately."""
        if self._surprises != self._inventory.surprises:
            self._surprises = self._inventory.surprises
            self._contested_until = self._clock() + CONTESTED_SECONDS
        return self._clock() < self._contested_until

    def _refuse(self, why: guesses.BadAssumption) -> None:
        """Count a hint that is no guess, and warn now and then with how many there were."""
        self._refused += 1
        self._count("hints_refused_total")
        if self._clock() >= self._silent_until:
            self._silent_until = self._clock() + WARNING_SECONDS
            _logger.warning("hint_refused", refused=self._refused, reason=str(why))

    def _lay(self, guess: Assumption, seconds: float) -> bool:
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
