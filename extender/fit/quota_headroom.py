"""Quota headroom: the memory that quotas leave to a pod, as a bound for the choice of its cards.

A card that the quotas have no room for is refused with `ResourceQuotaNotFit`. This matters where
the card decides the amount, which is a percentage of the card or a MIG instance.
"""

from collections.abc import Callable

from extender.fit.fit_question import NO_BOUND
from extender.scheduler_api.scheduling_request import SchedulingRequest
from ledger.core.decide.headroom_for_cards import most
from ledger.kube.requests.demand_rules import DemandRules
from ledger.log.ledger_port import StateView


class QuotaHeadroom:
    """The memory that quotas leave to a pod, by the state of a view and the demand rules."""

    def __init__(self, view: StateView, rules: Callable[[], DemandRules]) -> None:
        """Read the view and the rules at each question."""
        self._view, self._rules = view, rules

    def of(self, request: SchedulingRequest) -> int:
        """Return how many MiB quotas allow a pod at most, `NO_BOUND` if there is no bound.

        A pod with cards of several vendors is not bounded here, because their memory is counted
        apart.
        """
        vendors = {
            card.vendor for container in request.devices.containers for card in container.cards
        }
        if len(vendors) != 1:
            return NO_BOUND
        place = request.namespace, request.key, request.uid
        rooms = [
            most(self._view.state, *place, resource)
            for resource in self._memory(vendors.pop(), request.devices.types)
        ]
        return min((room for room in rooms if room is not None), default=NO_BOUND)

    def _memory(self, vendor: str, types: tuple[str, ...]) -> list[str]:
        """Return the resources as which memory of a vendor's cards of these types is charged."""
        rules = self._rules()
        memory = rules.by_name[vendor].memory
        return [memory, *(rules.typed[card_type][memory] for card_type in types)] if memory else []
