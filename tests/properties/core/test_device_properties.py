"""The charges of objects with devices, over random command sequences."""

from collections.abc import Iterator
from itertools import chain

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.builders.decide_and_fold import apply, used_of
from support.generators.random_commands import DEVICES, random_commands
from support.oracles.charging_oracle import ChargingOracle
from support.oracles.device_oracle import DeviceOracle

from ledger.core import invariants
from ledger.core.decide import observed_devices
from ledger.core.evolve import device_bounds
from ledger.core.model import events
from ledger.core.model.accounts import quota
from ledger.core.model.commands import Observe, Reserve, SetLimits
from ledger.core.model.state import State
from ledger.log import record_schema

seeds = st.integers(min_value=0, max_value=2**32)
amounts = st.integers(min_value=1, max_value=50)
NAMESPACE, CLAIM = "c1/red", "resourceclaims.resource.k8s.io/c"
MEMORY = "nvidia.com/gpumem"


def problems(seed: int, count: int, schema: int = 0) -> Iterator[str]:
    """Yield the objections of the oracles to random commands, in a log of a schema."""
    state, charges, devices = State(), ChargingOracle(), DeviceOracle()
    state.schema = schema
    for command in random_commands(seed, count):
        for item in apply(state, command):
            event = item.event
            if isinstance(event, events.Committed | events.Observed):
                bodies = charges.bodies[event.namespace, event.key]
                known = bodies.get((event.uid, events.OBJECT))
                held = bodies.get((event.uid, event.base)) if event.base >= 0 else None
                yield from devices.enter(
                    event,
                    stored=known.demand if known is not None else None,
                    held=held.demand if held is not None else None,
                )
            charges.see(event)
            if schema:
                record_schema.must_fit([event], schema)
    yield from invariants.violations(state)
    if used_of(state) != charges.used():
        yield f"{used_of(state)} is charged and not {charges.used()}"


@given(seeds)
def test_rises_by_devices_have_the_cause_that_the_oracle_expects(seed: int) -> None:
    assert list(problems(seed, 50)) == []


@given(seeds)
def test_an_older_log_gets_no_devices_and_keeps_all_invariants(seed: int) -> None:
    assert list(problems(seed, 50, schema=4)) == []


def test_the_older_log_finds_devices_that_are_not_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(observed_devices, "RECORDED_SINCE", 0)
    with pytest.raises(record_schema.NewerContent):
        list(chain.from_iterable(problems(seed, 200, schema=4) for seed in range(5)))


@given(bound=amounts, taken=amounts, again=amounts)
def test_a_claim_returns_to_its_bound_when_it_is_cleared(
    bound: int, taken: int, again: int
) -> None:
    assert _settled(bound, taken, again) == _expected(bound, taken, again)


def test_a_bound_that_is_forgotten_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def forgotten(*_: object) -> dict[str, int]:
        return {}

    monkeypatch.setattr(device_bounds, "_bound_before_devices", forgotten)
    assert _settled(50, 10, 20) != _expected(50, 10, 20)


def _settled(bound: int, taken: int, again: int) -> list[tuple[int, str]]:
    """Return charge and cause of a claim that is seen, allocated twice, and cleared."""
    state = State()
    apply(state, SetLimits(quota("c1", "red", "main"), (NAMESPACE,), {f"limits.{MEMORY}": 1_000}))
    apply(state, Reserve(NAMESPACE, CLAIM, "u", {MEMORY: bound}))
    steps = []
    for version, (amount, count) in enumerate(((bound, 0), (taken, 1), (again, 2), (bound, 0))):
        where = NAMESPACE, CLAIM, "u", version + 1
        [item] = apply(state, Observe(*where, {MEMORY: amount}, devices=DEVICES[:count]))
        steps.append((state.used[0], str(getattr(item.event, "cause", ""))))
    return steps


def _expected(bound: int, taken: int, again: int) -> list[tuple[int, str]]:
    more = "unallocated" if again <= bound else "allocated"
    return [
        (bound, ""),
        (taken, "allocated" if taken > bound else ""),
        (again, more if again > taken else ""),
        (bound, "unallocated" if bound > again else ""),
    ]
