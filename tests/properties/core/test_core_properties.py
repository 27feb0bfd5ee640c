"""The invariants of the core, over random command sequences."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.builders.decide_and_fold import apply, record, used_of
from support.generators.random_commands import random_command, random_commands
from support.oracles.charging_oracle import ChargingOracle

from ledger.core import invariants, snapshot_format
from ledger.core.decide.decider import decide
from ledger.core.evolve.evolver import InvariantError, evolve
from ledger.core.model import commands, events
from ledger.core.model.denials import Denial
from ledger.core.model.state import State
from ledger.log import records

seeds = st.integers(min_value=0, max_value=2**32)

TRUTH = events.Observed | events.LimitSet | events.Described
"""Events that may bring an account over its limit without a request for more."""


@given(seeds)
def test_every_step_keeps_all_invariants_and_agrees_with_the_oracle(seed: int) -> None:
    state, oracle = State(), ChargingOracle()
    for command in random_commands(seed, 60):
        for item in apply(state, command):
            oracle.see(item.event)
        assert list(invariants.violations(state)) == []
        assert used_of(state) == oracle.used()


@given(seeds)
def test_only_truth_and_lowered_limits_go_over_a_limit(seed: int) -> None:
    state = State()
    for command in random_commands(seed, 60):
        decision = decide(state, command)
        for event in [] if isinstance(decision, Denial) else decision:
            before = invariants.excesses(state)
            evolve(state, event, 0)
            worse = {
                line
                for line, excess in invariants.excesses(state).items()
                if excess > before.get(line, 0)
            }
            if isinstance(event, events.Released | events.Committed):
                # Pods count by their root's traits while it is known, and by their own after it.
                worse -= {line for line in worse if state.accounts[state.names[line][0]].selects}
            assert not worse or isinstance(event, TRUTH) or getattr(event, "forced", False)


@given(seeds)
def test_folding_live_from_zero_and_from_any_snapshot_gives_the_same_bytes(seed: int) -> None:
    source = random.Random(seed)
    live, payloads, images = State(), list[bytes](), [snapshot_format.encode(State())]
    script = random_commands(seed, 80)
    while script:
        size = source.randint(1, 7)
        payload = record(live, script[:size], time=len(payloads))
        script = script[size:]
        if payload is not None:
            payloads.append(payload)
            images.append(snapshot_format.encode(live))
    start = source.randrange(len(images))
    for state in (State(), snapshot_format.decode(images[start])):
        for position in range(state.position + 1, len(payloads) + 1):
            records.fold(state, position, payloads[position - 1])
            assert snapshot_format.encode(state) == images[position]
        assert state.hash == live.hash


@given(seeds)
def test_taking_back_a_group_restores_the_state_to_the_byte(seed: int) -> None:
    state = State()
    apply(state, *random_commands(seed, 40))
    before = snapshot_format.encode(state)
    state.journal = []
    apply(state, *random_commands(seed + 1, 40))
    state.undo()
    assert snapshot_format.encode(state) == before
    assert list(invariants.violations(state)) == []


@given(seeds)
def test_a_command_twice_in_a_row_charges_nothing_the_second_time(seed: int) -> None:
    state, source = State(), random.Random(seed)
    apply(state, *random_commands(seed, 30))
    for _ in range(20):
        command = random_command(source)
        if isinstance(decide(state, command), Denial):
            continue
        apply(state, command)
        used = list(state.used)
        again = apply(state, command)
        assert state.used == used
        assert all(isinstance(item.event, events.Raised) for item in again)


@given(seeds)
def test_after_quiescence_only_what_exists_is_charged(seed: int) -> None:
    state = State()
    apply(state, *random_commands(seed, 60))
    for name, space in list(state.namespaces.items()):
        for key, entry in list(space.entries.items()):
            for hold in entry.holds:
                apply(state, commands.Refute(name, key, hold.uid, hold.base))
    for space in state.namespaces.values():
        for entry in space.entries.values():
            assert entry.holds == ()
            assert entry.committed is not None
            assert entry.charge == entry.committed.demand


@pytest.mark.parametrize("seed", range(5))
def test_the_oracle_disagrees_when_a_charge_is_a_sum(seed: int, monkeypatch) -> None:
    def summed(left, right):
        return {name: left.get(name, 0) + right.get(name, 0) for name in {*left, *right}}

    monkeypatch.setattr("ledger.core.evolve.envelope_charges.largest", summed)
    state, oracle = State(), ChargingOracle()
    try:
        for command in random_commands(seed, 200):
            for item in apply(state, command):
                oracle.see(item.event)
        used = used_of(state)
    except InvariantError:
        return
    assert used != oracle.used()
