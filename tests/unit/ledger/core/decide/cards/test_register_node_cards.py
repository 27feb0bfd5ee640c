"""Registering: cards come, change, are lost while pods hold them, and are found again."""

import pytest
from support.builders.card_nodes import (
    NODE,
    after,
    card,
    do,
    ended,
    on_card,
    place,
    pod,
    refused,
    register,
    seen,
    share,
)
from support.builders.decide_and_fold import apply

from ledger.core import invariants, snapshot_format
from ledger.core.model import accounts, cards, commands
from ledger.core.model.state import State

ACCOUNT = accounts.card("c1", "n1", "GPU-0")


def _limits(state: State) -> list[int]:
    return [state.limit[line] for line in state.card_lines[NODE, "GPU-0"]]


def test_cards_are_accounts_of_three_lines() -> None:
    state = after(register(card(0)))
    assert list(state.accounts[ACCOUNT].lines) == list(cards.LINES)
    assert _limits(state) == [40, 100, 4]


def test_same_cards_again_lead_to_no_event() -> None:
    state = after(register(card(0), version=7))
    assert apply(state, register(card(0), version=8)) == []


def test_news_older_than_what_is_known_changes_nothing() -> None:
    state = after(register(card(0), version=7))
    assert apply(state, register(card(1), version=6)) == []
    assert apply(state, commands.RemoveNode(NODE, version=6)) == []


def test_other_limits_of_a_card_keep_its_used_amounts() -> None:
    state = after(register(card(0)), pod("a"), pod("b"), place("a", share(0, 30)))
    do(state, register(card(0, memory=20)))
    assert (_limits(state)[0], on_card(state)[0]) == (20, 30)
    assert refused(state, place("b", share(0, 1))) == "CardInsufficientMemory"
    do(state, register(card(0, memory=50)), place("b", share(0, 20)))


def test_lost_card_without_pods_has_no_account() -> None:
    state = after(register(card(0), card(1)))
    numbers = state.card_lines[NODE, "GPU-0"]
    do(state, register(card(1)))
    assert ACCOUNT not in state.accounts
    assert [state.limit[line] for line in numbers] == [0, 0, 0]
    assert state.nodes[NODE].lost == ()


def test_a_card_that_pods_hold_stays_an_account_until_they_are_gone() -> None:
    state = after(register(card(0), card(1)), pod("a"), seen("a"), place("a", share(0, 30)))
    do(state, register(card(1)))
    assert (_limits(state), on_card(state)) == ([0, 0, 0], (30, 0, 1))
    assert [lost.uuid for lost in state.nodes[NODE].lost] == ["GPU-0"]
    do(state, ended("a"))
    assert ACCOUNT not in state.accounts
    assert state.nodes[NODE].lost == ()


def test_a_card_that_is_back_has_its_lines_and_what_is_used_of_them() -> None:
    state = after(register(card(0)), pod("a"), place("a", share(0, 30)))
    numbers = state.card_lines[NODE, "GPU-0"]
    do(state, register(), register(card(0)))
    assert state.card_lines[NODE, "GPU-0"] == numbers
    assert (_limits(state), on_card(state)) == ([40, 100, 4], (30, 0, 1))
    assert state.nodes[NODE].lost == ()


def test_a_node_that_is_gone_is_forgotten_once_no_pod_holds_its_cards() -> None:
    state = after(register(card(0)), pod("a"), seen("a"), place("a", share()))
    do(state, commands.RemoveNode(NODE))
    assert state.nodes[NODE].gone
    assert refused(state, place("a", share(), node="c1/n2")) == "PodPlaced"
    do(state, ended("a"))
    assert (NODE in state.nodes, NODE in state.residents) == (False, False)
    assert list(invariants.violations(state)) == []


def test_removed_node_without_pods_is_dropped_at_once() -> None:
    state = after(register(card(0)), commands.RemoveNode(NODE))
    assert (state.nodes, state.residents) == ({}, {})
    assert apply(state, commands.RemoveNode(NODE)) == []


def test_a_node_that_is_back_has_its_pods() -> None:
    state = after(register(card(0)), pod("a"), place("a", share()), commands.RemoveNode(NODE))
    do(state, register(card(0)))
    assert not state.nodes[NODE].gone
    assert on_card(state) == (10, 0, 1)


def test_what_was_kept_on_a_node_goes_with_it() -> None:
    state = after(register(card(0)), pod("a"))
    parts = place("a", share()).parts
    do(state, commands.MakeRoom("c1/team", "pods/a", "a", NODE, parts, ()))
    do(state, commands.RemoveNode(NODE))
    assert state.claims == {}


@pytest.mark.parametrize(
    "wrong",
    [
        (card(0), card(0)),
        (card(0, uuid=""),),
        (card(0, memory=-1),),
        (card(0, cores=2**53 + 1),),
        (card(0, index=2**53 + 1),),
        (card(0, numa=-(2**53) - 1),),
        tuple(card(number) for number in range(1_025)),
    ],
)
def test_cards_that_no_node_can_have_are_refused(wrong) -> None:
    assert refused(State(), register(*wrong)) == "InvalidPlacement"


def test_a_state_with_lost_cards_and_gone_nodes_survives_a_snapshot() -> None:
    state = after(register(card(0), card(1)), pod("a"), place("a", share(0), share(1)))
    do(state, register(card(1)), commands.RemoveNode(NODE))
    image = snapshot_format.encode(state)
    restored = snapshot_format.decode(image)
    assert snapshot_format.encode(restored) == image
    assert restored.residents == state.residents
    do(restored, register(card(0), card(1)))
    assert (on_card(restored, 0), on_card(restored, 1)) == ((10, 0, 1), (10, 0, 1))
