"""Selecting: the one algorithm of fitting, asked about all nodes or about one.

What is probably taken, the overlay, counts against a pod; of what is guessed about the pod itself
nothing does.
"""

from collections.abc import Callable, Sequence
from itertools import repeat
from typing import Final

import msgspec
import numpy as np

from extender.fit.failed_nodes import reason_of
from extender.fit.fit_nodes import FitResult, chosen_parts, fit
from extender.fit.fit_question import NO_BOUND, FitQuestion
from extender.fit.node_score_expression import NodeScore
from extender.fit.quota_headroom import QuotaHeadroom
from extender.inventory.arrays import Booleans, Integers
from extender.inventory.inventory import ClusterInventory
from extender.inventory.overlay import Overlay
from extender.inventory.simulated_nodes import simulated_inventory
from extender.scheduler_api.extender_wire import NodeMeta
from extender.scheduler_api.scheduling_request import SchedulingRequest
from ledger.core.model.cards import HAMI, MIG, Parts, Phase
from ledger.core.model.denials import Reason
from ledger.kube.requests.device_requests import ContainerDeviceRequests, Weights

SPARE_TIMES: Final = (4, 2)
"""How many pods like it there should be room for on a node while others place pods, too."""

UNKNOWN: Final = -1
"""The row of a node that announced no cards."""


class FitPreferences(msgspec.Struct, frozen=True):
    """What counts for pods that say nothing else; `node_score` goes before the node policy."""

    node_policy: str = "binpack"
    card_policies: tuple[str, ...] = ("spread",)
    weights: Weights = Weights()
    node_score: NodeScore | None = None


class FitEngine:
    """Selects nodes and cards from an inventory and what lies over it."""

    def __init__(
        self,
        inventory: ClusterInventory,
        preferences: FitPreferences,
        clock: Callable[[], float],
        rooms: QuotaHeadroom | None = None,
    ) -> None:
        """Prefer what the settings say; `clock` is the time of the loop in seconds.

        Without `rooms` it is not asked what quotas allow.
        """
        self.inventory = inventory
        self._preferences = preferences
        self._clock = clock
        self._rooms = rooms

    def rows_among(self, names: Sequence[str]) -> Integers:
        """Return the row of each node, `UNKNOWN` for one that announced no cards."""
        rows = map(self.inventory.rows.get, names, repeat(UNKNOWN))
        return np.fromiter(rows, np.int64, len(names))

    def is_busy(self, name: str) -> bool:
        """Return whether a node is handing out cards and can do so for one pod at a time only."""
        row = self.inventory.rows.get(name)
        arrays = self.inventory.arrays
        return row is not None and arrays.keepers[row] == HAMI and bool(arrays.waiting[row])

    def busy(self, asked: SchedulingRequest, rows: Integers) -> Booleans:
        """Return on which of these rows a pod would have to wait for another to get its cards.

        Or probably would: another one may be on its way there.
        """
        arrays, overlay = self.inventory.arrays, self.inventory.overlay
        taken: Booleans = arrays.waiting[rows] > 0
        going_to = overlay.going_to(but=asked.uid)
        if going_to:
            taken |= np.isin(rows, list(going_to))
        for place in np.nonzero(taken)[0].tolist():
            taken[place] = arrays.keepers[rows[place]] == HAMI
        return taken

    def tight(self, asked: SchedulingRequest, fits: FitResult) -> Booleans:
        """Return on which rows a pod fits that have no room for several like it.

        While others place pods, too, such a node is lost in the moment until the pod is bound.
        Where no node has room for so many, fewer will do.
        """
        for times in SPARE_TIMES:
            tight = self._without_room_for(times, asked, fits)
            if (fits.feasible & ~tight).any():
                return tight
        return np.zeros_like(fits.feasible)

    def _without_room_for(self, times: int, asked: SchedulingRequest, fits: FitResult) -> Booleans:
        found = fits.feasible.copy()
        several = msgspec.structs.replace(asked.wish, wishes=_several(asked.wish.wishes, times))
        question = msgspec.structs.replace(
            self.question(asked, fits.rows[found]), wish=several, memory_room=NO_BOUND
        )
        over = self.inventory.overlay
        with over.without(asked.uid):
            found[found] = ~fit(self.inventory.arrays, over, question).feasible
        return found

    def imagining(self, nodes: Sequence[NodeMeta]) -> "FitEngine":
        """Return a selection among nodes that are empty and have what they announce themselves."""
        inventory = simulated_inventory(self.inventory.cluster, nodes)
        return FitEngine(inventory, self._preferences, self._clock, self._rooms)

    def fits(self, asked: SchedulingRequest, rows: Integers) -> FitResult:
        """Return which of these rows a pod fits on, how well, and why not."""
        over = self.inventory.overlay
        over.expire(self._clock())
        with over.without(asked.uid):
            return fit(self.inventory.arrays, over, self.question(asked, rows))

    def on(self, asked: SchedulingRequest, node: str) -> Parts | str:
        """Return the cards of one node that a pod should have, or why it fits there on none.

        Where only what is guessed is in the way, it is passed over: the ledger will know.
        """
        row = self.inventory.rows.get(node)
        if row is None:
            return str(Reason.NODE_UNREGISTERED)
        rows = np.array([row], np.int64)
        arrays = self.inventory.arrays
        fits = self.fits(asked, rows)
        if not fits.feasible[0]:
            nothing = Overlay(arrays.rows, arrays.columns)
            fits = fit(arrays, nothing, self.question(asked, rows))
        if not fits.feasible[0]:
            return reason_of(fits, 0)
        return chosen_parts(fits, 0, arrays, asked.wish)

    def wants_unused(self, asked: SchedulingRequest) -> bool:
        """Return whether only cards will do that nobody uses."""
        return self.question(asked, np.zeros(0, np.int64)).alone()

    def question(self, asked: SchedulingRequest, rows: Integers) -> FitQuestion:
        """Return what fitting is asked: what the pod says, and the settings where it does not."""
        preferences, wish = self._preferences, asked.wish
        return FitQuestion(
            wish=wish,
            rows=rows,
            node_policy=wish.node_policy or preferences.node_policy,
            card_policies=wish.card_policies or preferences.card_policies,
            weights=wish.weights or preferences.weights,
            memory_room=self._room(asked),
            node_score=None if wish.node_policy else preferences.node_score,
        )

    def _room(self, asked: SchedulingRequest) -> int:
        if self._rooms is None:
            return NO_BOUND
        return self._rooms.of(asked, cut=MIG in self.inventory.arrays.modes)


def _several(
    wishes: tuple[ContainerDeviceRequests, ...], times: int
) -> tuple[ContainerDeviceRequests, ...]:
    """Return what so many pods want that run beside one another."""
    beside = tuple(wish for wish in wishes if wish.phase != Phase.INIT)
    return wishes + beside * (times - 1)
