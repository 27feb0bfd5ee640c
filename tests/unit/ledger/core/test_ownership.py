"""Amounts of a pod that only its cards decide, and that stay until the pod ends."""

from support.builders.card_nodes import (
    GPU,
    MEMORY,
    NODE,
    TEAM,
    advance,
    after,
    card,
    do,
    ended,
    on_card,
    place,
    placement,
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
from ledger.core.model.accounts import quota
from ledger.core.model.cards import Stage
from ledger.core.model.state import State

QUOTA = quota("c1", "team", "gpus")
WEB = "deployments.apps/web"


def _ledger(limit: int) -> State:
    limits = commands.SetLimits(QUOTA, (TEAM,), {f"limits.{MEMORY}": limit})
    return after(limits, register(card(0, memory=200), card(1, memory=200), card(2, memory=200)))


def _used(state: State) -> int:
    return state.used[state.accounts[QUOTA].lines[f"limits.{MEMORY}"]]


def _root(demand: int, version: int = 1) -> tuple[commands.Reserve, commands.Observe]:
    amounts = {GPU: 3, MEMORY: demand}
    return (
        commands.Reserve(TEAM, WEB, "r1", amounts),
        commands.Observe(TEAM, WEB, "r1", version, amounts, generation=1),
    )


def test_a_pod_on_a_smaller_card_than_it_was_held_at_is_charged_less() -> None:
    state = _ledger(100)
    do(state, pod("a", 80), place("a", share(0, 40), stands={MEMORY: 40}))
    assert (_used(state), on_card(state)) == (40, (40, 0, 1))
    do(state, pod("b", 60))
    assert _used(state) == 100


def test_a_pod_on_a_larger_card_is_charged_more_only_if_that_fits() -> None:
    state = _ledger(100)
    do(state, pod("a", 40), pod("b", 40))
    assert refused(state, place("a", share(0, 61), stands={MEMORY: 61})) == "ResourceQuotaNotFit"
    do(state, place("a", share(0, 60), stands={MEMORY: 60}))
    assert _used(state) == 100


def test_observed_placement_is_charged_in_full() -> None:
    state = _ledger(100)
    do(state, pod("a", 80), place("a", share(0, 120), stands={MEMORY: 120}, seen=True))
    assert _used(state) == 120
    assert list(invariants.violations(state)) == []


def test_observation_of_the_pod_keeps_amounts_of_its_cards() -> None:
    state = _ledger(100)
    do(state, pod("a", 80), place("a", share(0, 40), stands={MEMORY: 40}), seen("a", 5, 80))
    assert _used(state) == 40
    assert apply(state, seen("a", 6, 80)) == []
    assert _used(state) == 40


def test_update_of_the_pod_keeps_amounts_of_its_cards() -> None:
    state = _ledger(100)
    do(state, pod("a", 80), seen("a", 5, 80), place("a", share(0, 40), stands={MEMORY: 40}))
    assert apply(state, pod("a", 80, base=5)) == []
    assert _used(state) == 40


def test_amounts_of_cards_stay_when_the_cards_are_released() -> None:
    state = _ledger(100)
    do(state, pod("a", 80), place("a", share(0, 40), stands={MEMORY: 40}), unplace("a"))
    placed = placement(state, "a")
    assert placed is not None
    assert (placed.node, placed.stands, placed.parts) == ("", {MEMORY: 40}, ())
    do(state, seen("a", 5, 80))
    assert (_used(state), on_card(state)) == (40, (0, 0, 0))
    do(state, place("a", share(1, 70), stands={MEMORY: 70}))
    assert _used(state) == 70


def test_amounts_of_earlier_cards_stay_when_new_cards_decide_none() -> None:
    state = _ledger(100)
    do(state, pod("a", 80), place("a", share(0, 40), stands={MEMORY: 40}), unplace("a"))
    do(state, place("a", share(1, 40)), seen("a", 5, 80))
    assert _used(state) == 40


def test_amounts_of_cards_end_with_the_pod() -> None:
    state = _ledger(100)
    do(state, pod("a", 80), seen("a", 5, 80), place("a", share(0, 40), stands={MEMORY: 40}))
    do(state, unplace("a"), ended("a"))
    assert (_used(state), placement(state, "a")) == (0, None)


def test_amounts_of_cards_do_not_pass_to_a_pod_of_the_same_name() -> None:
    state = _ledger(200)
    do(state, pod("a", 80), seen("a", 5, 80))
    do(state, commands.Reserve(TEAM, "pods/a", "a2", {GPU: 1, MEMORY: 100}))
    do(state, place("a", share(0, 40), stands={MEMORY: 40}))
    assert _used(state) == 100
    do(state, commands.Refute(TEAM, "pods/a", "a2", 0))
    assert _used(state) == 40


def test_a_pod_that_asks_for_nothing_any_more_is_charged_nothing() -> None:
    state = _ledger(100)
    do(state, pod("a", 80), seen("a", 5, 80), place("a", share(0, 40), stands={MEMORY: 40}))
    do(state, commands.Observe(TEAM, "pods/a", "a", 6, {}))
    assert _used(state) == 0
    do(state, advance("a", Stage.ALLOCATED, stands={MEMORY: 30}))
    assert _used(state) == 0


def test_ended_init_containers_may_only_lower_amounts_of_cards() -> None:
    state = _ledger(100)
    do(state, pod("a", 80), place("a", share(0, 40), stands={MEMORY: 40}))
    assert apply(state, advance("a", Stage.PROPOSED, stands={MEMORY: 60})) == []
    do(state, advance("a", Stage.ALLOCATED, stands={MEMORY: 30}))
    assert _used(state) == 30
    assert apply(state, advance("a", Stage.ALLOCATED, stands={MEMORY: 35})) == []


def test_a_resize_is_decided_on_card_and_quota_together() -> None:
    state = _ledger(100)
    do(state, pod("a", 40), pod("b", 40), place("a", share(0, 40)))
    assert refused(state, resize("a", share(0, 61), stands={MEMORY: 61})) == "ResourceQuotaNotFit"
    assert (_used(state), on_card(state)) == (80, (40, 0, 1))
    do(state, resize("a", share(0, 60), stands={MEMORY: 60}))
    assert (_used(state), on_card(state)) == (100, (60, 0, 1))
    do(state, seen("a", 5, 40), resize("a", share(0, 20), stands={MEMORY: 20}))
    assert (_used(state), on_card(state)) == (60, (20, 0, 1))


def test_an_envelope_is_lowered_by_what_its_pods_turned_out_to_be_less() -> None:
    state = _ledger(240)
    do(state, *_root(240), pod("a", 80, root=WEB), pod("b", 80, root=WEB))
    assert _used(state) == 240
    do(state, place("a", share(0, 40), stands={MEMORY: 40}))
    assert _used(state) == 200
    do(state, place("b", share(1, 40), stands={MEMORY: 40}))
    assert _used(state) == 160


def test_an_envelope_is_lowered_once_though_its_pod_is_placed_twice() -> None:
    state = _ledger(240)
    do(state, *_root(240), pod("a", 80, root=WEB))
    do(state, place("a", share(0, 40), stands={MEMORY: 40}), unplace("a"))
    do(state, place("a", share(1, 40), stands={MEMORY: 40}))
    assert _used(state) == 200


def test_an_envelope_never_falls_below_what_its_pods_take() -> None:
    state = _ledger(400)
    do(state, *_root(100), pod("a", 80, root=WEB), pod("b", 80, root=WEB), pod("c", 80, root=WEB))
    assert _used(state) == 240
    do(state, place("a", share(0, 40), stands={MEMORY: 40}))
    root = state.namespaces[TEAM].entries[WEB]
    assert (_used(state), root.charge[MEMORY]) == (200, 100)
    do(state, place("b", share(1, 10), stands={MEMORY: 10}))
    assert _used(state) == 130
    do(state, place("c", share(2, 10), stands={MEMORY: 10}))
    assert _used(state) == 60
    assert list(invariants.violations(state)) == []


def test_replacement_beyond_the_lowered_envelope_is_checked() -> None:
    state = _ledger(240)
    do(state, *_root(240), pod("a", 80, root=WEB), seen("a", 5, 80, root=WEB))
    do(state, pod("b", 80, root=WEB), pod("c", 80, root=WEB))
    do(state, place("a", share(0, 40), stands={MEMORY: 40}), pod("other", 40), ended("a"))
    assert _used(state) == 240
    assert refused(state, pod("d", 80, root=WEB)) == "QuotaExceeded"
    do(state, pod("d", 40, root=WEB))
    assert _used(state) == 240


def test_a_status_of_the_root_does_not_raise_its_envelope_again() -> None:
    state = _ledger(240)
    do(state, *_root(240), pod("a", 80, root=WEB))
    do(state, place("a", share(0, 40), stands={MEMORY: 40}))
    apply(state, commands.Observe(TEAM, WEB, "r1", 7, {GPU: 3, MEMORY: 240}, generation=1))
    assert _used(state) == 200


def test_a_pod_that_outgrows_its_envelope_is_checked_against_the_quota() -> None:
    state = _ledger(100)
    do(state, *_root(80), pod("a", 80, root=WEB))
    assert refused(state, place("a", share(0, 101), stands={MEMORY: 101})) == "ResourceQuotaNotFit"
    do(state, place("a", share(0, 100), stands={MEMORY: 100}))
    assert _used(state) == 100


def test_amounts_of_cards_survive_a_snapshot() -> None:
    state = _ledger(240)
    do(state, *_root(240), pod("a", 80, root=WEB), pod("b", 80, root=WEB))
    do(state, place("a", share(0, 40), stands={MEMORY: 40}), place("b", share(1, 50)), unplace("a"))
    image = snapshot_format.encode(state)
    restored = snapshot_format.decode(image)
    assert snapshot_format.encode(restored) == image
    for ledger in (state, restored):
        do(ledger, seen("a", 5, 80, root=WEB), unplace("b"))
        do(ledger, place("a", share(1, 60), stands={MEMORY: 60}))
    assert snapshot_format.encode(restored) == snapshot_format.encode(state)
    assert restored.nodes.keys() == {NODE}


def test_quota_gets_amounts_of_init_containers_back_when_they_end() -> None:
    state = _ledger(100)
    do(state, pod("a", 80), place("a", share(0, 80)), seen("a", 5, 80))
    do(state, advance("a", Stage.ALLOCATED, initialised=True, stands={MEMORY: 30}))
    assert _used(state) == 30
    assert apply(state, seen("a", 6, 80)) == []
    assert _used(state) == 30


def test_coming_further_never_charges_more() -> None:
    state = _ledger(100)
    do(state, pod("a", 40), place("a", share(0, 40)))
    do(state, advance("a", Stage.ALLOCATED, initialised=True, stands={MEMORY: 60}))
    assert _used(state) == 40


def test_observation_on_another_node_does_not_change_a_placement() -> None:
    state = _ledger(100)
    do(state, pod("a", 40), place("a", share(0, 40)))
    assert apply(state, advance("a", Stage.BOUND, node=f"{NODE}-before")) == []
    do(state, advance("a", Stage.BOUND, node=NODE))
