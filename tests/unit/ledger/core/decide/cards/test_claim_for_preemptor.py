"""Claiming: what is kept for a pod while others leave, from whom, and until when."""

import msgspec
import pytest
from support.builders.card_nodes import (
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
    pod,
    refused,
    register,
    resize,
    seen,
    share,
    unplace,
)
from support.builders.decide_and_fold import apply

from ledger.core import invariants, snapshot_format
from ledger.core.model import commands
from ledger.core.model.cards import MIG, Parts
from ledger.core.model.state import State

VICTIM = (TEAM, "pods/low", "low")


def _make_room(parts: Parts, *victims: tuple[str, str, str], node: str = NODE) -> commands.MakeRoom:
    return commands.MakeRoom(TEAM, "pods/high", "high", node, parts, victims)


def _withdraw(uid: str = "high") -> commands.Withdraw:
    return commands.Withdraw(TEAM, "pods/high", uid, "elapsed")


def _crowded() -> State:
    """Return a card full of what `low` has, and two pods that wait."""
    return after(
        register(card(0)),
        pod("low"),
        seen("low"),
        place("low", share(0, 40)),
        pod("high"),
        pod("c"),
    )


def test_what_a_victim_leaves_is_kept_for_the_pod() -> None:
    state = _crowded()
    do(state, _make_room(app(share(0, 30)), VICTIM), ended("low"))
    assert refused(state, place("c", share(0, 20))) == "CardClaimed"
    do(state, place("c", share(0, 10)), place("high", share(0, 30)))
    assert (on_card(state), state.claims) == ((40, 0, 2), {})


def test_what_victims_still_have_is_not_kept_a_second_time() -> None:
    state = after(register(card(0)), pod("low"), pod("high"), pod("c"))
    do(state, place("low", share(0, 20)), _make_room(app(share(0, 30)), VICTIM))
    do(state, place("c", share(0, 10)), unplace("c"))
    assert refused(state, place("c", share(0, 11))) == "CardClaimed"
    do(state, unplace("low"))
    assert refused(state, place("c", share(0, 11))) == "CardClaimed"
    do(state, place("c", share(0, 10)))


def test_a_resize_takes_nothing_that_is_kept_for_another() -> None:
    state = after(register(card(0)), pod("c"), pod("high"), place("c", share(0, 10)))
    do(state, _make_room(app(share(0, 30))))
    assert refused(state, resize("c", share(0, 11))) == "CardClaimed"


def test_card_claimed_for_exclusive_use_is_refused() -> None:
    state = after(register(card(0, cores=200)), pod("high"), pod("c"))
    do(state, _make_room(app(share(0, 10, 100, exclusive=True))))
    assert refused(state, place("c", share(0, 5))) == "CardClaimed"
    do(state, place("high", share(0, 10, 100, exclusive=True)))


def test_room_that_would_not_be_free_is_not_kept() -> None:
    state = _crowded()
    do(state, commands.End(TEAM, "pods/c", "c", 9, "deleted"))
    assert refused(state, _make_room(app(share(0, 10)))) == "CardClaimed"
    assert refused(state, _make_room(app(share(0, 41)), VICTIM)) == "CardClaimed"
    assert refused(state, _make_room(app(share(1, 10)), VICTIM)) == "CardNotFound"
    gone = (TEAM, "pods/low", "another")
    assert refused(state, _make_room(app(share(0, 10)), gone)) == "CardClaimed"


def test_a_card_that_others_stay_on_is_not_kept_to_be_had_alone() -> None:
    state = after(register(card(0, cores=200)), pod("low"), pod("stay"), pod("high"))
    do(state, place("low", share()), place("stay", share()))
    alone = app(share(0, 10, 100, exclusive=True))
    assert refused(state, _make_room(alone, VICTIM)) == "ExclusiveDeviceAllocateConflict"
    do(state, _make_room(alone, VICTIM, (TEAM, "pods/stay", "stay")))


def test_same_claim_again_leads_to_no_event_and_another_replaces_it() -> None:
    state = after(register(card(0), card(1)), register(card(0), card(1), node="c1/n2"))
    do(state, pod("high"), _make_room(app(share(0))))
    assert apply(state, _make_room(app(share(0)))) == []
    do(state, _make_room(app(share(0)), node="c1/n2"))
    assert list(state.claims) == ["c1/n2"]
    do(state, _make_room(app(share(1)), node="c1/n2"))
    assert [claim.parts for claim in state.claims["c1/n2"]] == [app(share(1))]


def test_a_placed_or_unknown_pod_can_claim_nothing() -> None:
    state = after(register(card(0)), pod("high"), place("high", share()))
    assert refused(state, _make_room(app(share()))) == "PodPlaced"
    other = commands.MakeRoom(TEAM, "pods/x", "x", NODE, app(share()), ())
    assert refused(state, other) == "PodUnknown"


def test_what_is_kept_for_one_pod_is_not_kept_for_another() -> None:
    state = after(register(card(0)), pod("high"), pod("c"), _make_room(app(share(0, 30))))
    other = commands.MakeRoom(TEAM, "pods/c", "c", NODE, app(share(0, 11)), ())
    assert refused(state, other) == "CardClaimed"
    do(state, msgspec.structs.replace(other, parts=app(share(0, 10))))


@pytest.mark.parametrize("changes", [{"healthy": False}, {"cordoned": True}, {"mode": MIG}])
def test_unusable_card_is_not_kept(changes) -> None:
    state = after(register(card(0, **changes)), pod("high"))
    assert refused(state, _make_room(app(share()))) == "CardNotHealthy"


def test_a_claim_of_containers_that_exclude_one_another_is_refused() -> None:
    state = after(register(card(0, cores=200)), pod("high"))
    parts = app(share(0, 10, 100, exclusive=True), share())
    assert refused(state, _make_room(parts)) == "ExclusiveDeviceAllocateConflict"


def test_nothing_is_kept_on_a_node_that_is_gone() -> None:
    state = after(register(card(0)), pod("low"), place("low", share()), pod("high"))
    do(state, commands.RemoveNode(NODE))
    assert refused(state, _make_room(app(share()), VICTIM)) == "NodeUnregistered"


def test_a_pod_claims_cards_of_its_own_cluster_only() -> None:
    state = after(register(card(0), node="c2/n1"), pod("high"))
    assert refused(state, _make_room(app(share()), node="c2/n1")) == "InvalidPlacement"


def test_a_claim_ends_with_its_pod() -> None:
    state = after(register(card(0)), pod("high"), seen("high"), _make_room(app(share())))
    do(state, ended("high"))
    assert state.claims == {}
    assert apply(state, _withdraw()) == []


def test_claim_is_withdrawn_only_for_its_own_pod() -> None:
    state = after(register(card(0)), pod("high"), _make_room(app(share())))
    assert apply(state, _withdraw("another")) == []
    do(state, _withdraw())
    assert state.claims == {}


def test_a_claim_outlasts_its_pod_being_seen_and_a_snapshot() -> None:
    state = after(register(card(0)), pod("high"), pod("c"), _make_room(app(share(0, 35))))
    do(state, seen("high"))
    image = snapshot_format.encode(state)
    restored = snapshot_format.decode(image)
    assert snapshot_format.encode(restored) == image
    assert refused(restored, place("c", share(0, 6))) == "CardClaimed"
    assert list(invariants.violations(restored)) == []


def test_a_placement_that_came_further_does_not_free_what_is_kept() -> None:
    state = _crowded()
    do(state, _make_room(app(share(0, 30)), VICTIM), advance("low", 2))
    assert refused(state, place("c", share(0, 1))) == "CardInsufficientMemory"
