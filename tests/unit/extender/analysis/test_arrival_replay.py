"""Arrivals on cards that are replayed: who comes, who goes, and what that takes meanwhile."""

from typing import Any

import pytest

from extender.analysis.arrival_replay import Replay, ReplayOutcome, by_preferences
from extender.analysis.arrivals import FOREVER, Arrival, Fleet, device_request_for
from extender.fit.inventory_fit import FitPreferences
from ledger.core.model.cards import MIG, Card, Part, Phase, Profile, Share

CARD: dict[str, Any] = {
    "uuid": "a",
    "index": 0,
    "type": "A100",
    "memory": 40,
    "cores": 100,
    "slots": 4,
}
HALF = Profile("1g", 20, 30, 1, ((0, 1), (1, 1)))


def fleet(**more: Any) -> Fleet:
    return {"n1": {"a": Card(**{**CARD, **more})}}


def arrival(name: str, began: int, ended: int = FOREVER, **share: Any) -> Arrival:
    taken = Share(**{"uuid": "a", "memory": 10, "cores": 0, **share})
    parts = (Part("main", Phase.APP, (taken,)),)
    return Arrival(("c/t", name), name, "n1", parts, began, ended=ended)


def replayed(*arrivals: Arrival, on: Fleet | None = None, begin: int = 0) -> ReplayOutcome:
    cards = on or fleet()
    choose = by_preferences(FitPreferences(), cards, keep_types=False)
    return Replay(cards, begin=begin, end=100).run(arrivals, choose, lambda _done, _total: None)


def test_who_leaves_makes_room_for_who_comes_at_the_same_time() -> None:
    outcome = replayed(arrival("one", 1, 50, memory=40), arrival("two", 50, memory=40))
    assert (outcome.placed, outcome.refused) == (2, 0)


def test_arrival_that_leaves_at_once_uses_no_time() -> None:
    outcome = replayed(arrival("one", 10, 10, memory=40), arrival("two", 20, memory=40))
    assert (outcome.placed, outcome.memory.mean) == (2, 32.0)


def test_exclusive_card_is_not_shared() -> None:
    alone = arrival("alone", 1, 50, cores=30, exclusive=True)
    outcome = replayed(alone, arrival("early", 40), arrival("late", 60))
    assert outcome.reasons == {"ExclusiveDeviceAllocateConflict": 1}


def test_instances_of_a_card_that_is_cut_are_taken_and_given_back() -> None:
    cut = fleet(mode=MIG, profiles=(HALF,), memory=90)
    ending, two = (
        arrival(name, 1, ended, memory=20, cores=30, profile="1g", start=at, size=1)
        for at, (name, ended) in enumerate((("one", 50), ("two", FOREVER)))
    )
    early, late = arrival("early", 40, memory=1), arrival("late", 60, memory=1)
    outcome = replayed(ending, two, early, late, on=cut)
    assert (outcome.placed, outcome.reasons) == (3, {"CardMigTopologyInfeasible": 1})


def test_init_containers_that_were_over_before_take_nothing() -> None:
    arrived = arrival("one", 1)
    arrived.parts = (Part("first", Phase.INIT, (Share("a", 40, 0),)), *arrived.parts)
    arrived.initialised = 5
    outcome = replayed(arrived, begin=10)
    assert (outcome.memory.peak, outcome.memory.mean) == (10, 10.0)


def test_device_request_is_derived_from_the_cards_of_a_container() -> None:
    cards = {name: Card(name, 0, kind, 40, 100, 4) for name, kind in (("a", "A100"), ("b", "T4"))}
    shares = Share("a", 10, 100, exclusive=True), Share("b", 5, 30)
    wish = device_request_for((Part("main", Phase.APP, shares),), cards, keep_types=True)
    (asked,) = wish.containers[0].cards
    assert (asked.count, asked.memory, asked.cores, asked.exclusive) == (2, 10, 100, True)
    assert asked.choice.use_types == ("A100", "T4")


@pytest.mark.parametrize("cards", [{}, {"n1": {}}])
def test_no_card_is_a_reason(cards: dict[str, dict[str, Card]]) -> None:
    choose = by_preferences(FitPreferences(), fleet(), keep_types=False)
    outcome = Replay(cards, begin=0, end=100).run(
        [arrival("one", 1)], choose, lambda _done, _total: None
    )
    assert outcome.reasons == {"NodeUnregistered": 1}
