"""Placing, over random lives of pods on cards, beside an independent model."""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.builders.decide_and_fold import apply, record, used_of
from support.generators.card_commands import random_life
from support.oracles.card_oracle import CardOracle

from ledger.core import invariants, snapshot_format
from ledger.core.decide.decider import decide
from ledger.core.evolve.evolver import InvariantError, evolve
from ledger.core.model import accounts, card_bookings, cards, events
from ledger.core.model.denials import Denial
from ledger.core.model.qualified_names import split_qualified
from ledger.core.model.state import State
from ledger.log import records

seeds = st.integers(min_value=0, max_value=2**32)


def _expected(state: State, oracle: CardOracle) -> dict[tuple[str, str], int]:
    """Return the oracle's usage of every line of the state."""
    usage = oracle.used()
    for account in state.accounts:
        if accounts.kind(account) is accounts.AccountKind.CARD:
            cluster, node, uuid = accounts.parts(account)
            used = oracle.used_of_card((f"{cluster}/{node}", uuid))
            usage.update({(account, key): used[at] for at, key in enumerate(cards.LINES)})
    return usage


def _live(seed: int, count: int) -> str:
    """Live through random commands; return the first contradiction of the model, empty if none."""
    state, oracle = State(), CardOracle()
    for command in random_life(seed, count, state):
        decision = decide(state, command)
        for event in [] if isinstance(decision, Denial) else decision:
            oracle.remember()
            evolve(state, event, 0)
            oracle.see(event)
        problems = [*oracle.problems, *invariants.violations(state)]
        if used_of(state) != _expected(state, oracle):
            problems.append("the used amounts differ")
        known = {
            (node, card) for node, card in oracle.taken_cards() if not _is_open(state, node, card)
        }
        problems += [f"{where} is held and no account" for where in known]
        if problems:
            return f"seed {seed}, {command}: {problems[0]}"
    return ""


def _is_open(state: State, node: str, uuid: str) -> bool:
    cluster, name = split_qualified(node)
    return accounts.card(cluster, name, uuid) in state.accounts


@given(seeds)
def test_every_step_agrees_with_the_model_and_keeps_all_invariants(seed: int) -> None:
    assert _live(seed, 60) == ""


@given(seeds)
def test_a_placement_command_twice_charges_nothing_the_second_time(seed: int) -> None:
    state = State()
    for command in random_life(seed, 60, state):
        apply(state, command)
        used = list(state.used)
        again = apply(state, command)
        assert state.used == used
        assert all(isinstance(item.event, events.Raised) for item in again)


@given(seeds)
def test_folding_live_from_zero_and_from_a_snapshot_gives_the_same_bytes(seed: int) -> None:
    live, payloads, images = State(), list[bytes](), [snapshot_format.encode(State())]
    for command in random_life(seed, 60, live):
        payload = record(live, [command], time=len(payloads))
        if payload is not None:
            payloads.append(payload)
            images.append(snapshot_format.encode(live))
    for start in (0, len(payloads) // 2):
        state = snapshot_format.decode(images[start])
        for position in range(start + 1, len(payloads) + 1):
            records.fold(state, position, payloads[position - 1])
            assert snapshot_format.encode(state) == images[position]
        assert state.residents == live.residents


@given(seeds)
def test_taking_commands_back_restores_the_state_to_the_byte(seed: int) -> None:
    state = State()
    apply(state, *random_life(seed, 40, state))
    before, residents = snapshot_format.encode(state), {**state.residents}
    state.journal = []
    for command in random_life(seed + 1, 40, state):
        apply(state, command)
    state.undo()
    assert snapshot_format.encode(state) == before
    assert {name: dict(pods) for name, pods in state.residents.items()} == residents


def _nothing(*_: Any, **__: Any) -> None:
    return None


def _whole(parts: cards.Parts, *, initialised: bool = False) -> card_bookings.Bookings:
    return card_bookings.booked(parts)


GUARDS: dict[str, tuple[str, Callable[..., Any]]] = {
    "cards of a node that has them": ("ledger.core.decide.cards.card_checks.missing", _nothing),
    "one pod at a time": ("ledger.core.decide.cards.card_checks.busy", _nothing),
    "health and instances": ("ledger.core.decide.cards.card_checks._unusable", _nothing),
    "who has a card alone": ("ledger.core.decide.cards.card_checks.in_the_way", _nothing),
    "room on cards": (
        "ledger.core.decide.cards.place_pod._if_cards_have_room",
        lambda _, event, __: [event],
    ),
    "room": ("ledger.core.decide.cards.place_pod.event_if_room", lambda _, event, *__: [event]),
    "the end of a pod": ("ledger.core.evolve.placement_charges.vacate", lambda *_: []),
    "the end of init containers": ("ledger.core.evolve.placement_charges.booked", _whole),
    "what stands": (
        "ledger.core.evolve.placement_charges.standing",
        lambda _, __, ___, demand: demand,
    ),
    "an envelope that is less": (
        "ledger.core.evolve.placement_charges._lowered",
        lambda _, __, known, *___: known,
    ),
    "an earlier pod of the name": ("ledger.core.decide.cards.card_checks.followed", _nothing),
    "a resize of amounts only": (
        "ledger.core.decide.cards.resize_placed_pod._moved",
        lambda *_: "",
    ),
}


@pytest.mark.parametrize("guard", GUARDS)
def test_the_model_finds_what_a_missing_guard_lets_through(guard: str, monkeypatch) -> None:
    monkeypatch.setattr(*GUARDS[guard])
    for seed in range(60):
        try:
            if _live(seed, 100):
                return
        except (InvariantError, AssertionError, KeyError):
            return
    pytest.fail(f"nothing shows that {guard} is not checked")
