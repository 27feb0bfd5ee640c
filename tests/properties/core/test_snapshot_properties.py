"""A state comes back from its snapshot in every field, whenever its namespaces are read."""

import random
from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.builders.decide_and_fold import apply, record
from support.builders.state_comparison import INDEXES, differences
from support.generators.card_commands import random_life
from support.generators.placement_records import placement_payloads
from support.generators.random_commands import random_commands
from support.recorded.golden_logs import GOLDEN, payloads_of

from ledger.core import invariants, snapshot_format
from ledger.core.model.commands import AnyCommand
from ledger.core.model.state import Namespace, State
from ledger.log import records

seeds = st.integers(min_value=0, max_value=2**32)


def copy_of(state: State) -> State:
    return snapshot_format.decode(snapshot_format.encode(state))


def folded(payloads: Iterable[bytes]) -> State:
    state = State()
    for position, payload in enumerate(payloads, start=1):
        records.fold(state, position, payload)
    return state


def grown(state: State, commands: Iterable[AnyCommand]) -> State:
    for command in commands:
        record(state, [command], time=state.time + 1)
    return state


def read_all(state: State) -> State:
    assert all(getattr(space, "entries", None) is not None for space in state.namespaces.values())
    return state


@given(seeds, st.sampled_from(["quotas", "cards", "both"]))
def test_a_state_comes_back_in_every_field(seed: int, kind: str) -> None:
    if kind == "quotas":
        state = grown(State(), random_commands(seed, 60))
    elif kind == "cards":
        state = State()
        grown(state, random_life(seed, 60, state))
    else:
        state = folded(placement_payloads(seed, 60))
    assert differences(state, copy_of(state)) == []
    assert list(invariants.violations(copy_of(state))) == []
    assert snapshot_format.encode(read_all(copy_of(state))) == snapshot_format.encode(state)


@given(seeds)
def test_it_does_not_matter_when_a_namespace_is_read(seed: int) -> None:
    """Events of the tail change accounts, labels and coverage before the namespace is read."""
    source = random.Random(seed)
    state = grown(State(), random_commands(seed, 40))
    late, early = copy_of(state), read_all(copy_of(state))
    for command in random_commands(source.randrange(2**32), 30):
        assert record(late, [command], time=late.time + 1) == record(
            early, [command], time=early.time + 1
        )
    assert differences(late, early) == []


@given(seeds)
def test_taking_back_a_group_restores_what_was_not_read(seed: int) -> None:
    state = grown(State(), random_commands(seed, 40))
    copy = copy_of(state)
    copy.journal = []
    apply(copy, *random_commands(seed + 1, 30))
    copy.undo()
    assert differences(state, copy) == []


@given(seeds)
def test_reading_any_one_field_reads_the_namespace(seed: int) -> None:
    source = random.Random(seed)
    state = grown(State(), random_commands(seed, 40))
    copy = copy_of(state)
    for name, space in copy.namespaces.items():
        field = source.choice(INDEXES)
        assert getattr(space, field) == getattr(state.namespaces[name], field) or field == "draws"
        assert type(space) is Namespace
        with pytest.raises(AttributeError):
            _ = space.unread


def test_the_golden_logs_have_every_rare_field() -> None:
    """Each state on the way is compared, and each rare field has a value in one of them."""
    seen = set[str]()
    for path in sorted(GOLDEN.glob("schema-*.log")):
        state = State()
        for position, payload in enumerate(payloads_of(path), start=1):
            records.fold(state, position, payload)
            assert differences(state, copy_of(state)) == []
            seen.update(rare_fields(state))
    assert seen == {
        *("roots", "traits", "admitted", "generation", "stamp", "raises", "several bodies"),
        *("labels", "described", "reach", "selects", "ended", "clusters"),
        *("nodes", "placed", "claims", "lost"),
        *("devices", "bound"),
    }


def rare_fields(state: State) -> Iterable[str]:
    entries = [entry for space in state.namespaces.values() for entry in space.entries.values()]
    objects = [entry.committed for entry in entries if entry.committed is not None]
    holds = [hold for entry in entries for hold in entry.holds]
    accounts = state.accounts.values()
    present = {
        "roots": any(entry.root for entry in entries),
        "traits": any(entry.traits for entry in entries),
        "admitted": any(stored.admitted is not None for stored in objects),
        "generation": any(stored.generation for stored in objects),
        "stamp": any(hold.stamp for hold in holds),
        "raises": any(hold.raises for hold in holds),
        "several bodies": any(len(entry.bodies()) > 1 for entry in entries),
        "labels": state.labels,
        "described": state.described,
        "reach": any(account.reach is not None for account in accounts),
        "selects": any(account.selects for account in accounts),
        "ended": state.ended,
        "clusters": state.clusters,
        "nodes": state.nodes,
        "placed": any(space.placed for space in state.namespaces.values()),
        "claims": state.claims,
        "devices": any(stored.devices for stored in objects),
        "bound": any(stored.bound is not None for stored in objects),
        "lost": any(node.lost for node in state.nodes.values()),
    }
    return {name for name, value in present.items() if value}
