"""Rooms: how much memory quotas allow a pod whose cards decide how much it takes.

A percentage of a card, or a whole one, is more on a larger card. Where quotas bear it on the
smaller ones only, the others are left out before anybody tries; the ledger decides all the same.
"""

from collections.abc import Callable

from extender.fit.fit_question import NO_BOUND
from extender.scheduler_api.scheduling_request import SchedulingRequest
from ledger.core.decide.object_headroom import most
from ledger.kube.requests.demand_rules import DemandRules
from ledger.kube.requests.device_requests import PodDeviceRequest
from ledger.log.ledger import StateView


class QuotaHeadroom:
    """Works out rooms from the state that a view shows, and what is charged for by the rules."""

    def __init__(self, view: StateView, rules: Callable[[], DemandRules]) -> None:
        """Look at the view and the rules at each question."""
        self._view, self._rules = view, rules

    def of(self, asked: SchedulingRequest, *, cut: bool) -> int:
        """Return how many MiB quotas allow a pod at most, `NO_BOUND` where they do not matter.

        They do where cards decide: for parts of cards, and for all pods where cards are `cut`,
        since an instance may be larger than what was asked for. A pod with cards of several vendors
        is not bounded here: their memory is counted apart.
        """
        vendors = {card.vendor for wish in asked.wish.wishes for card in wish.cards}
        if len(vendors) != 1 or not (cut or _wants_parts(asked.wish)):
            return NO_BOUND
        place = asked.namespace, asked.key, asked.uid
        rooms = [
            most(self._view.state, *place, resource)
            for resource in self._memory(vendors.pop(), asked.wish.types)
        ]
        return min((room for room in rooms if room is not None), default=NO_BOUND)

    def _memory(self, vendor: str, types: tuple[str, ...]) -> list[str]:
        """Return the resources that memory of a vendor's cards of these types is charged as."""
        rules = self._rules()
        memory = rules.by_name[vendor].memory
        return [memory, *(rules.typed[one][memory] for one in types)] if memory else []


def _wants_parts(wish: PodDeviceRequest) -> bool:
    return any(card.percentage for one in wish.wishes for card in one.cards)
