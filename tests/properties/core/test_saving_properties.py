"""The envelope of a root while resource claims of its pods are allocated, over random commands."""

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.builders.decide_and_fold import apply, used_of
from support.builders.state_comparison import differences
from support.generators.allocated_workloads import NAMESPACE, ROOT, allocated_workloads
from support.oracles.charging_oracle import ChargingOracle

from ledger.core import invariants
from ledger.core.decide import reserve
from ledger.core.evolve import device_bounds
from ledger.core.evolve.line_charges import InvariantError
from ledger.core.model.state import State
from ledger.core.snapshot_format import decode, encode

seeds = st.integers(min_value=0, max_value=2**32)
SEARCHED = 60


def problems(seed: int, count: int) -> Iterator[str]:
    """Yield where a state differs from the oracle, contradicts itself, or is not read again."""
    state, oracle = State(), ChargingOracle()
    for command in allocated_workloads(seed, count):
        for item in apply(state, command):
            oracle.see(item.event)
        yield from invariants.violations(state)
        if used_of(state) != oracle.used():
            yield f"{command}: {used_of(state)} is charged and not {oracle.used()}"
            return
    yield from differences(state, decode(encode(state)))


@given(seeds)
def test_the_oracle_charges_the_same(seed: int) -> None:
    assert list(problems(seed, 40)) == []


def test_envelopes_fall_and_rise_in_these_commands() -> None:
    lower = raised = 0
    for seed in range(SEARCHED):
        state, before = State(), 0
        for command in allocated_workloads(seed, 40):
            apply(state, command)
            entry = state.entry(NAMESPACE, ROOT) if NAMESPACE in state.namespaces else None
            if entry is None or entry.committed is None:
                continue
            bound, demand = entry.committed.bound, sum(entry.committed.demand.values())
            lower += bound is not None
            raised += bound is not None and demand > before
            before = demand
    assert lower > 5 * SEARCHED
    assert raised > SEARCHED // 8


@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        ("saved", lambda entry: {}),
        ("lowered", lambda stored, draw: stored),
        ("with_earlier_savings", lambda stored, uid, demand: demand),
        ("spec_envelope", lambda stored: stored.demand),
    ],
)
def test_a_wrong_rule_is_found(monkeypatch: pytest.MonkeyPatch, name: str, wrong: Any) -> None:
    monkeypatch.setattr(device_bounds, name, wrong)
    assert first_problems()


def test_an_update_that_is_not_checked_for_room_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its demand less the savings must not be compared with the demand of the spec."""
    short, lowered = reserve._short, reserve._with_savings
    monkeypatch.setattr(
        reserve,
        "_short",
        lambda state, space, command: short(state, space, lowered(space, command)),
    )
    assert first_problems()


def first_problems() -> list[str]:
    """Return the problems of the first seeds."""
    problems_found: list[str] = []
    for seed in range(SEARCHED):
        try:
            problems_found += problems(seed, 40)
        except (InvariantError, AssertionError) as error:
            problems_found.append(str(error))
    return problems_found
