"""Placing pods: what is booked, by which rule, for how long, and charged only once."""

import pytest
from support.builders.card_nodes import (
    GPU,
    MEMORY,
    NODE,
    TEAM,
    advance,
    after,
    app,
    card,
    do,
    ended,
    on_card,
    place,
    placement,
    pod,
    refused,
    register,
    seen,
    share,
)
from support.builders.decide_and_fold import apply

from ledger.core import invariants, snapshot_format
from ledger.core.decide.decider import decide
from ledger.core.evolve.evolver import InvariantError, evolve
from ledger.core.model import cards, commands, events
from ledger.core.model.accounts import quota
from ledger.core.model.cards import Part, Phase, Stage
from ledger.core.model.denials import Denial


def test_a_pod_books_what_its_containers_take_together() -> None:
    state = after(register(card(0), card(1)), pod("a"))
    parts = (
        Part("one", Phase.APP, (share(0, 10, 20), share(1, 5, 20))),
        Part("two", Phase.APP, (share(0, 7, 30),)),
    )
    do(state, place("a", parts=parts))
    assert (on_card(state, 0), on_card(state, 1)) == ((17, 50, 2), (5, 20, 1))


def test_init_containers_book_their_peak_until_they_are_over() -> None:
    state = after(register(card(0)), pod("a"))
    parts = (
        Part("proxy", Phase.SIDECAR, (share(0, 3),)),
        Part("load", Phase.INIT, (share(0, 30),)),
        Part("main", Phase.APP, (share(0, 10),)),
    )
    do(state, place("a", parts=parts))
    assert on_card(state) == (33, 0, 2)
    do(state, advance("a", Stage.ALLOCATED, initialised=True))
    assert on_card(state) == (13, 0, 2)


def test_the_same_placement_again_charges_nothing() -> None:
    state = after(register(card(0)), pod("a"), place("a", share()))
    assert apply(state, place("a", share())) == []
    assert apply(state, place("a", share(memory=20), seen=True)) == []
    assert on_card(state) == (10, 0, 1)
    assert refused(state, place("a", share(memory=20))) == "PodPlaced"


def test_a_pod_that_the_ledger_does_not_have_gets_no_cards() -> None:
    state = after(register(card(0)), pod("a"))
    assert refused(state, place("b", share())) == "PodUnknown"
    other = commands.Place(TEAM, "pods/a", "another", NODE, app(share()))
    assert refused(state, other) == "PodUnknown"


def test_a_pod_gets_cards_of_its_own_cluster_only() -> None:
    state = after(register(card(0), node="c2/n1"), pod("a"))
    assert refused(state, place("a", share(), node="c2/n1")) == "InvalidPlacement"


@pytest.mark.parametrize(
    ("taken", "wanted", "reason", "line"),
    [
        (share(0, 35), share(0, 6), "CardInsufficientMemory", cards.MEMORY),
        (share(0, 1, 60), share(0, 1, 41), "CardInsufficientCore", cards.CORES),
    ],
)
def test_denial_of_a_card_without_room_names_the_short_line(taken, wanted, reason, line) -> None:
    state = after(register(card(0)), pod("a"), pod("b"), place("a", taken))
    denial = decide(state, place("b", wanted))
    assert isinstance(denial, Denial)
    assert (denial.reason, denial.transient) == (reason, True)
    assert [(shortage.resource, shortage.short) for shortage in denial.shortages] == [(line, 1)]


def test_denial_of_a_card_without_slots_names_the_slots() -> None:
    state = after(register(card(0, slots=1)), pod("a"), pod("b"), place("a", share()))
    assert refused(state, place("b", share())) == "CardTimeSlicingExhausted"


def test_the_limit_itself_can_be_reached() -> None:
    state = after(register(card(0)), pod("a"), pod("b"), place("a", share(0, 35, 60)))
    do(state, place("b", share(0, 5, 40)))
    assert on_card(state) == (40, 100, 2)


def test_an_earlier_pod_of_the_name_keeps_its_cards_until_its_end_is_seen() -> None:
    state = after(register(card(0)), pod("a"), seen("a"), place("a", share()))
    do(state, commands.Reserve(TEAM, "pods/a", "a2", {GPU: 1, MEMORY: 10}))
    later = commands.Place(TEAM, "pods/a", "a2", NODE, app(share()))
    assert refused(state, later) == "PodPlaced"
    do(state, commands.Observe(TEAM, "pods/a", "a2", 9, {GPU: 1, MEMORY: 10}), later)
    assert on_card(state) == (10, 0, 1)
    placed = placement(state, "a")
    assert placed is not None
    assert placed.uid == "a2"


def test_the_end_of_an_attempt_that_is_not_the_pod_ends_no_placement() -> None:
    state = after(register(card(0)), pod("a"), seen("a"), place("a", share()))
    do(state, commands.Reserve(TEAM, "pods/a", "a", {GPU: 1, MEMORY: 30}, base=5))
    do(state, commands.Refute(TEAM, "pods/a", "a", 5))
    assert on_card(state) == (10, 0, 1)
    do(state, ended("a"))
    assert (on_card(state), placement(state, "a")) == ((0, 0, 0), None)


def test_a_placement_promises_a_version_until_the_pod_is_bound() -> None:
    state = after(register(card(0)), pod("a"), place("a", share(), version=7))
    assert placement(state, "a").version == 7
    do(state, advance("a", Stage.BOUND))
    assert placement(state, "a").version == 0


def test_observed_placement_promises_no_version() -> None:
    state = after(register(card(0)), pod("a"), place("a", share(), version=7, seen=True))
    assert placement(state, "a").version == 0


@pytest.mark.parametrize("version", [7, 0])
def test_a_snapshot_has_the_version_of_a_placement(version: int) -> None:
    state = after(register(card(0)), pod("a"), place("a", share(), version=version))
    copy = snapshot_format.decode(snapshot_format.encode(state))
    assert placement(copy, "a") == placement(state, "a")
    assert placement(copy, "a").version == version


def test_observed_placement_is_charged_over_the_limit() -> None:
    state = after(register(card(0)), pod("a"), pod("b"), place("a", share(0, 40)))
    do(state, place("b", share(0, 30), seen=True))
    assert on_card(state) == (70, 0, 2)
    placed = placement(state, "b")
    assert placed is not None
    assert (placed.observed, placed.stage) == (True, Stage.BOUND)
    assert list(invariants.violations(state)) == []


def test_observed_placement_on_unknown_cards_is_refused() -> None:
    state = after(register(card(0)), pod("a"), pod("b"), pod("c"), place("a", share()))
    do(state, commands.RemoveNode(NODE))
    do(state, place("b", share(), seen=True))
    assert on_card(state) == (20, 0, 2)
    assert refused(state, place("c", share(1), seen=True)) == "CardNotFound"
    assert refused(state, place("c", share(), node="c1/n9", seen=True)) == "NodeUnregistered"


def test_node_of_hami_is_busy_while_it_allocates_to_one_pod() -> None:
    state = after(register(card(0), keeper=cards.HAMI), pod("a"), pod("b"), place("a", share()))
    assert refused(state, place("b", share())) == "NodeBusy"
    do(state, advance("a", Stage.BOUND))
    assert refused(state, place("b", share())) == "NodeBusy"
    do(state, advance("a", Stage.ALLOCATED), place("b", share()))


def test_a_shortage_of_quota_is_not_a_shortage_of_cards() -> None:
    state = after(
        commands.SetLimits(quota("c1", "team", "gpus"), (TEAM,), {f"limits.{MEMORY}": 25}),
        register(card(0)),
        pod("a"),
        pod("b"),
    )
    denial = decide(state, place("a", share(0, 20), stands={MEMORY: 20}))
    assert isinstance(denial, Denial)
    assert (denial.reason, denial.transient) == ("ResourceQuotaNotFit", True)
    assert [(shortage.requested, shortage.short) for shortage in denial.shortages] == [(10, 5)]


def test_an_event_that_was_not_decided_on_this_state_is_refused() -> None:
    state = after(register(card(0)), pod("a"), place("a", share(0, 30)), pod("b"))
    for event in (
        events.Placed(TEAM, "pods/b", "b", NODE, app(share(0, 11)), {}),
        events.Placed(TEAM, "pods/a", "a", NODE, app(share()), {}),
        events.Unplaced(TEAM, "pods/b", "b", "unbound"),
        events.Resized(TEAM, "pods/a", "a", app(share(0, 41)), {}),
        events.NodeRemoved("c1/n9"),
        events.Withdrawn(TEAM, "pods/a", "a", "elapsed"),
    ):
        with state.trying(), pytest.raises(InvariantError):
            evolve(state, event, 0)
