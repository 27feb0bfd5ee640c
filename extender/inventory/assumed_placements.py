"""Assumed placements: the cards that pods will probably get, and whether other extenders place.

Until the ledger has placed a pod whose node is chosen, its cards look free. The extender that
ranked its nodes assumes its placement and publishes the assumption to the other extenders, so that
they do not send their pods to the same cards. Such a message shows that other extenders place pods
now.
Assumed placements only steer filter, select and prioritize: the ledger decides without them.
"""

import math
from collections.abc import Callable
from typing import Final

from extender.inventory import assumed_placement_messages
from extender.inventory.assumed_placement_messages import Assumption, AssumptionReader
from extender.inventory.cluster_inventory import ClusterInventory
from extender.scheduler_api.extender_ports import Publish
from extender.scheduler_api.scheduling_request import SchedulingRequest
from ledger.core.model.card_bookings import booked, exclusive_on
from ledger.core.model.cards import Parts
from ledger.runtime.counter_protocol import Count, uncounted

ASSUMED_SECONDS: Final = 8.0
"""How long a pod is assumed to be on its way to the node that was best for it.

In a crowded cluster its bind, which chooses again, may be seconds away. A shorter time loses binds:
of 3,000 pods on two busy cores 0.6 to 1.3 % with 3 s, 0.3 to 0.5 % with 8 s.
"""

PLACING_SECONDS: Final = 30.0
"""How long the cards that a bind has chosen are assumed to be taken; the ledger answers sooner."""

CONTESTED_SECONDS: Final = 2.0
"""How long after another extender placed a pod, or was about to, more of that is expected."""


class AssumedPlacements:
    """The assumed placements of the pods of one inventory, kept in its overlay."""

    def __init__(
        self,
        inventory: ClusterInventory,
        *,
        clock: Callable[[], float],
        publish: Publish | None = None,
        count: Count = uncounted,
    ) -> None:
        """`publish` sends to the other extenders; `clock` is the time of the loop in seconds."""
        self._inventory, self._clock = inventory, clock
        self._publish = publish
        self._reader = AssumptionReader(clock=clock, count=count)
        self._surprises = inventory.surprises
        self._contested_until = -math.inf

    def assume(self, request: SchedulingRequest, node: str, parts: Parts, seconds: float) -> None:
        """Assume for so long that a pod is on its way to these cards, and publish that."""
        assumption = Assumption(
            request.cluster,
            request.namespace,
            request.key,
            request.uid,
            node,
            booked(parts),
            sorted(exclusive_on(parts)),
        )
        if self._lay_over(assumption, seconds) and self._publish is not None:
            self._publish(assumed_placement_messages.encode(assumption))

    def forget(self, request: SchedulingRequest) -> None:
        """Assume nothing about a pod any more; other extenders forget it at its deadline."""
        self._inventory.overlay.drop(request.uid)

    def receive(self, message: bytes) -> None:
        """Take over an assumed placement of another extender, unless it is over or invalid."""
        assumption = self._reader.read(message)
        if assumption is None or assumption.cluster != self._inventory.cluster:
            return
        self._contested_until = self._clock() + CONTESTED_SECONDS
        if not self._inventory.has_placed(assumption.namespace, assumption.key, assumption.uid):
            self._lay_over(assumption, ASSUMED_SECONDS)

    def contested(self) -> bool:
        """Return whether other extenders place pods now, or did so lately."""
        if self._surprises != self._inventory.surprises:
            self._surprises = self._inventory.surprises
            self._contested_until = self._clock() + CONTESTED_SECONDS
        return self._clock() < self._contested_until

    def _lay_over(self, assumption: Assumption, seconds: float) -> bool:
        """Add an assumed placement to the overlay; return whether its node is known."""
        row = self._inventory.rows.get(assumption.node)
        if row is None:
            return False
        uuids = self._inventory.arrays.uuids[row]
        at = {uuid: column for column, uuid in enumerate(uuids) if uuid}
        bookings = {
            at[uuid]: booking for uuid, booking in assumption.bookings.items() if uuid in at
        }
        alone = {at[uuid] for uuid in assumption.alone if uuid in at}
        until = self._clock() + seconds
        self._inventory.overlay.add(assumption.uid, row, bookings, alone, until)
        return True
