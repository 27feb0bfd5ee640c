"""The envelope of a root whose pods consume less than the bounds of their resource claims."""

from typing import Any

import pytest
from support.builders.decide_and_fold import apply
from support.builders.state_comparison import differences

from ledger.core import invariants
from ledger.core.decide.decider import decide
from ledger.core.model import commands, events
from ledger.core.model.accounts import quota
from ledger.core.model.commands import Asker, End, Observe, Reserve
from ledger.core.model.denials import Denial
from ledger.core.model.devices import Device
from ledger.core.model.state import Object, State
from ledger.core.snapshot_format import decode, encode

TEAM, WEB, MEMORY = "c1/team", "deployments.apps/web", "nvidia.com/gpumem"
DEVICE = Device("claim", "gpu", "gpu.example.com", "n1", "gpu-0", "s1", memory=8)
BOUND, CONSUMED, PODS = 10, 8, 4


def told(state: State, *steps: commands.AnyCommand) -> list[str]:
    """Apply commands; return the kinds and causes of their events."""
    items = apply(state, *steps)
    assert list(invariants.violations(state)) == []
    names = [(type(item.event).__name__, getattr(item.event, "cause", "")) for item in items]
    return [" ".join(filter(None, map(str, name))) for name in names]


def root(version: int, amount: int, generation: int = 1, **more: Any) -> Observe:
    demand = {MEMORY: amount}
    return Observe(TEAM, WEB, "web", version, demand, generation=generation, **more)


def pod(number: int, version: int, amount: int = CONSUMED, *, allocated: bool = True) -> Observe:
    devices = (DEVICE,) if allocated else ()
    where = TEAM, f"pods/p{number}", f"uid-{number}", version
    return Observe(*where, {MEMORY: amount}, root=WEB, devices=devices)


def gone(number: int, version: int) -> End:
    return End(TEAM, f"pods/p{number}", f"uid-{number}", version, "deleted")


def update(base: int, amount: int) -> Reserve:
    return Reserve(TEAM, WEB, "web", {MEMORY: amount}, base=base, asker=Asker("Deployment", 6))


def stored(state: State) -> Object:
    entry = state.entry(TEAM, WEB)
    assert entry is not None
    assert entry.committed is not None
    return entry.committed


@pytest.fixture
def state() -> State:
    """Return a state in which a root of four pods has its envelope and no pod yet."""
    made = State()
    limits = {f"limits.{MEMORY}": 50}
    apply(made, commands.SetLimits(quota("c1", "team", "gpus"), (TEAM,), limits))
    apply(made, Reserve(TEAM, WEB, "web", {MEMORY: PODS * BOUND}), root(1, PODS * BOUND))
    for number in range(PODS):
        apply(made, pod(number, 10 + number, BOUND, allocated=False))
    assert made.used == [PODS * BOUND]
    return made


@pytest.fixture
def settled(state: State) -> State:
    for number in range(PODS):
        told(state, pod(number, 20 + number))
    assert state.used == [PODS * CONSUMED]
    return state


def test_each_allocation_lowers_the_envelope(state: State) -> None:
    used = []
    for number in range(PODS):
        assert told(state, pod(number, 20 + number)) == ["Committed"]
        used.append(state.used[0])
    assert used == [38, 36, 34, 32]
    assert stored(state).bound == {MEMORY: PODS * BOUND}


def test_a_status_does_not_bring_the_savings_back(settled: State) -> None:
    assert told(settled, root(30, PODS * BOUND)) == []
    assert settled.used == [32]


def test_another_template_of_the_same_amounts_keeps_the_savings(settled: State) -> None:
    assert told(settled, root(30, PODS * BOUND, generation=2)) == []
    assert told(settled, root(31, PODS * BOUND, generation=3, traits=("app=a",))) == [
        "Observed moved"
    ]
    assert (settled.used, stored(settled).bound) == ([32], {MEMORY: PODS * BOUND})


def test_an_update_reserves_what_it_adds(settled: State) -> None:
    refused = decide(settled, update(30, 6 * BOUND))
    assert isinstance(refused, Denial)
    assert "would need 52" in refused.message
    assert told(settled, update(30, 5 * BOUND)) == ["Reserved"]
    assert settled.used == [32 + BOUND]
    assert told(settled, root(31, 5 * BOUND, generation=2)) == ["Committed"]
    assert (settled.used, stored(settled).admitted) == ([42], None)
    told(settled, pod(4, 32, BOUND, allocated=False), pod(4, 33))
    assert settled.used == [5 * CONSUMED]


def test_a_repeated_update_of_more_raises_by_what_it_adds(settled: State) -> None:
    """Another body at the same base, as after a webhook that changed the object once more."""
    assert told(settled, update(30, PODS * BOUND + 2)) == ["Reserved"]
    assert settled.used == [32 + 2]
    assert told(settled, update(30, 5 * BOUND)) == ["Raised"]
    assert settled.used == [32 + BOUND]
    refused = decide(settled, update(30, 6 * BOUND))
    assert isinstance(refused, Denial)
    assert "would need 52" in refused.message
    assert told(settled, root(31, 5 * BOUND, generation=2)) == ["Committed"]
    assert (settled.used, stored(settled).admitted) == ([42], None)


def test_an_update_within_the_saved_room_needs_room(settled: State) -> None:
    others = Reserve(TEAM, "pods/other", "other", {MEMORY: 50 - PODS * CONSUMED})
    assert told(settled, others) == ["Reserved"]
    refused = decide(settled, update(30, PODS * BOUND + 4))
    assert isinstance(refused, Denial)
    assert "would need 36" in refused.message
    assert told(settled, update(30, PODS * BOUND)) == []


def test_a_reduction_keeps_no_more_than_the_new_envelope(settled: State) -> None:
    assert told(settled, root(30, 3 * BOUND, generation=2)) == ["Committed"]
    assert settled.used == [32]
    told(settled, gone(0, 31))
    assert settled.used == [24]


def test_an_unreviewed_increase_is_charged_beside_the_savings(settled: State) -> None:
    assert told(settled, root(30, 5 * BOUND, generation=2)) == ["Observed unreserved"]
    assert (settled.used, stored(settled).admitted) == ([42], {MEMORY: 32})


def test_savings_lower_the_reviewed_part_as_well(settled: State) -> None:
    """Otherwise a pod could draw from it what the root is not charged."""
    told(settled, root(30, 5 * BOUND, generation=2))
    told(settled, *(pod(number, 40 + number, 1) for number in range(PODS)))
    told(settled, pod(4, 50, BOUND, allocated=False))
    told(settled, pod(4, 51, 1))
    assert (settled.used, stored(settled).admitted) == ([5], None)
    again = Reserve(TEAM, "pods/p9", "uid-9", {MEMORY: BOUND}, root=WEB)
    assert told(settled, again) == ["Reserved"]
    assert settled.used == [5 + BOUND]


def test_the_place_of_a_deleted_pod_is_kept_as_it_was_settled(settled: State) -> None:
    told(settled, gone(0, 30))
    assert settled.used == [32]
    again = Reserve(TEAM, "pods/p9", "uid-9", {MEMORY: BOUND}, root=WEB)
    assert told(settled, again) == ["Reserved"]
    assert settled.used == [34]
    assert told(settled, pod(9, 31)) == ["Committed"]
    assert settled.used == [32]


def test_pods_made_again_one_by_one_do_not_wear_the_envelope_down(settled: State) -> None:
    for number in range(PODS):
        told(settled, gone(number, 30))
    for number in range(PODS):
        told(settled, pod(10 + number, 40 + number, BOUND, allocated=False))
        told(settled, pod(10 + number, 50 + number))
        assert settled.used == [32]


def test_an_allocation_that_ends_is_charged_with_the_pods(settled: State) -> None:
    assert told(settled, pod(0, 30, BOUND, allocated=False)) == ["Observed unallocated"]
    assert settled.used == [3 * CONSUMED + BOUND]
    assert told(settled, pod(0, 31)) == ["Committed"]
    assert settled.used == [32]


def test_a_pod_that_takes_more_than_its_bound_saves_nothing(state: State) -> None:
    told(state, pod(0, 20, 12))
    assert state.used == [PODS * BOUND + 2]
    told(state, pod(1, 21))
    assert state.used == [PODS * BOUND]


def test_a_root_that_is_seen_last_is_charged_the_savings(state: State) -> None:
    late = State()
    limits = {f"limits.{MEMORY}": 50}
    apply(late, commands.SetLimits(quota("c1", "team", "gpus"), (TEAM,), limits))
    for number in range(2):
        told(late, pod(number, 10, BOUND, allocated=False), pod(number, 11))
    told(late, root(12, PODS * BOUND))
    assert late.used == [36]


def test_a_snapshot_keeps_the_envelope_of_the_spec(settled: State) -> None:
    read = decode(encode(settled))
    assert differences(settled, read) == []
    assert told(read, gone(0, 30), root(31, PODS * BOUND, generation=2)) == ["Released deleted"]
    assert read.used == [32]


def test_an_older_log_keeps_the_bounds(state: State) -> None:
    state.schema = 4
    told(state, *(pod(number, 20) for number in range(PODS)))
    assert state.used == [PODS * BOUND]


def test_a_deleted_root_leaves_what_its_pods_take(settled: State) -> None:
    told(settled, End(TEAM, WEB, "web", 40, "deleted"))
    assert settled.used == [32]
    made = root(41, PODS * BOUND)
    again = Observe(TEAM, WEB, "web-2", 41, made.demand, generation=1)
    told(settled, Reserve(TEAM, WEB, "web-2", made.demand), again)
    assert settled.used == [32]


def test_the_events_name_the_demand_of_the_spec(settled: State) -> None:
    [item] = apply(settled, root(30, 3 * BOUND, generation=2))
    assert isinstance(item.event, events.Committed)
    assert item.event.demand == {MEMORY: 3 * BOUND}
