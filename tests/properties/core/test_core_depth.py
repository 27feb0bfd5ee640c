"""The invariants of the core over long sequences, in which commands follow up on one another."""

import random

from hypothesis import example, given
from hypothesis import strategies as st
from support.builders.decide_and_fold import apply, used_of
from support.generators.random_commands import random_command, random_commands
from support.generators.state_commands import command_about
from support.oracles.charging_oracle import ChargingOracle

from ledger.core import invariants
from ledger.core.decide.decider import decide
from ledger.core.evolve import envelope_charges
from ledger.core.evolve.evolver import evolve
from ledger.core.model import amounts, commands
from ledger.core.model.denials import Denial
from ledger.core.model.state import State

seeds = st.integers(min_value=0, max_value=2**32)
STEPS = 120


def lived(seed: int) -> tuple[State, ChargingOracle, random.Random]:
    """Return a state with some accounts, and who follows it."""
    source, state, oracle = random.Random(seed), State(), ChargingOracle()
    for item in apply(state, *random_commands(seed, 10)):
        oracle.see(item.event)
    return state, oracle, source


def upcoming(source: random.Random, state: State) -> commands.AnyCommand:
    if source.random() < 0.5:
        return command_about(source, state)
    return random_command(source)


@given(seeds)
def test_any_sequence_is_decided_without_a_contradiction(seed: int) -> None:
    state, oracle, source = lived(seed)
    for _ in range(STEPS):
        for item in apply(state, upcoming(source, state)):
            oracle.see(item.event)
        assert list(invariants.violations(state)) == []
        assert used_of(state) == oracle.used()


@given(seeds)
@example(3315)  # An attempt is repeated without a demand, and its labels come under a full quota.
def test_no_more_than_was_stored_is_a_right(seed: int) -> None:
    state, _, source = lived(seed)
    for _ in range(STEPS):
        apply(state, upcoming(source, state))
        for space in state.namespaces.values():
            for entry in space.entries.values():
                stored = entry.committed
                if stored is not None and stored.admitted is not None:
                    assert amounts.covers(stored.demand, stored.admitted)
                    assert stored.demand != stored.admitted
                assert amounts.covers(entry.charge, envelope_charges.usable(entry))


@given(seeds)
def test_what_a_root_was_not_asked_for_is_drawn_only_where_there_is_room(seed: int) -> None:
    state, _, source = lived(seed)
    for _ in range(STEPS):
        command = upcoming(source, state)
        decision = decide(state, command)
        if isinstance(decision, Denial):
            continue
        over, usable = invariants.excesses(state), _usable(state, command)
        for event in decision:
            evolve(state, event, 0)
        if usable is None or len(decision) != 1:
            continue
        assert isinstance(command, commands.Reserve)
        space = state.namespaces[command.namespace]
        draw = space.draws.get(command.root)
        if draw is not None and not amounts.covers(usable, draw.charge):
            root = space.entries[command.root]
            counting = envelope_charges.by_line(
                space, [envelope_charges.ChargeTerm(root.traits, command.demand)]
            )
            assert over.keys().isdisjoint(counting)


def _usable(state: State, command: commands.AnyCommand) -> amounts.Amounts | None:
    """Return the draw that a new pod has a right to, None where its root has all its envelope."""
    if not isinstance(command, commands.Reserve) or command.forced:
        return None
    root = state.entry(command.namespace, command.root)
    if root is None or state.entry(command.namespace, command.key) is not None:
        return None
    stored = root.committed
    return None if stored is None or stored.admitted is None else envelope_charges.usable(root)
