"""Devices that resource claims gave to pods, and resource claims as objects of their own."""

from typing import Any

import msgspec
import pytest
from support.builders.decide_and_fold import apply
from support.builders.quota_commands import tell

from ledger.core import invariants
from ledger.core.evolve.evolver import InvariantError
from ledger.core.model import commands, events
from ledger.core.model.accounts import quota
from ledger.core.model.amounts import Amounts
from ledger.core.model.commands import Observe, Reserve
from ledger.core.model.denials import Denial
from ledger.core.model.devices import DEVICES_MAX, Device, Devices
from ledger.core.model.state import Object, State

TEAM, MEMORY, CARDS = "c1/team", "nvidia.com/gpumem", "nvidia.com/gpu"
CLAIM, POD = "resourceclaims.resource.k8s.io/shared", "pods/p"
DEVICE = Device("shared", "gpu", "gpu.example.com", "n1", "gpu-0", "s1", memory=10)
OTHER = msgspec.structs.replace(DEVICE, device="gpu-1")


def mib(amount: int) -> Amounts:
    return {MEMORY: amount} if amount else {}


def limited(limit: int = 100, **more: Any) -> State:
    state = State()
    account = quota("c1", "team", "gpus")
    limits = {f"limits.{MEMORY}": limit}
    apply(state, commands.SetLimits(account, (TEAM,), limits, **more))
    return state


def seen(
    version: int, amount: int, devices: Devices | None = (), key: str = CLAIM, **more: Any
) -> Observe:
    return Observe(TEAM, key, "u", version, mib(amount), devices=devices, **more)


def stored(state: State, key: str = CLAIM) -> Object:
    entry = state.entry(TEAM, key)
    assert entry is not None
    assert entry.committed is not None
    return entry.committed


def causes(state: State, *steps: commands.AnyCommand) -> list[str]:
    """Apply commands; return the kinds and causes of their events."""
    items = apply(state, *steps)
    assert list(invariants.violations(state)) == []
    names = [(type(item.event).__name__, getattr(item.event, "cause", "")) for item in items]
    return [" ".join(filter(None, map(str, name))) for name in names]


def test_a_claim_settles_and_returns_to_its_bound() -> None:
    state = limited()
    steps = [seen(1, 40), seen(2, 10, (DEVICE,)), seen(3, 40), seen(4, 60, (OTHER,))]
    assert causes(state, Reserve(TEAM, CLAIM, "u", mib(40)), *steps) == [
        "Reserved",
        "Committed",
        "Committed",
        "Observed unallocated",
        "Observed allocated",
    ]
    assert state.used == [60]
    assert (stored(state).devices, stored(state).bound) == ((OTHER,), mib(40))
    assert causes(state, seen(5, 40)) == ["Committed"]
    assert stored(state).bound is None


def test_another_allocation_within_the_bound_is_not_drift() -> None:
    state = limited()
    apply(state, Reserve(TEAM, CLAIM, "u", mib(40)), seen(1, 10, (DEVICE,)))
    assert causes(state, seen(2, 40, (OTHER,))) == ["Observed unallocated"]
    assert causes(state, seen(3, 41, (DEVICE, OTHER))) == ["Observed allocated"]


def test_a_sender_that_reads_no_allocation_changes_nothing() -> None:
    state = limited()
    apply(state, Reserve(TEAM, POD, "u", mib(40)), seen(1, 10, (DEVICE,), POD))
    assert causes(state, seen(1, 40, None, POD), seen(2, 40, None, POD)) == []
    assert causes(state, seen(3, 5, None, POD)) == ["Committed"]
    assert (stored(state, POD).devices, state.used) == ((DEVICE,), [5])


def test_a_reviewed_update_of_an_object_with_devices_raises_its_bound() -> None:
    state = limited()
    apply(state, Reserve(TEAM, POD, "u", mib(40)), seen(1, 10, (DEVICE,), POD))
    apply(state, Reserve(TEAM, POD, "u", mib(25), base=1))
    assert causes(state, seen(2, 25, None, POD)) == ["Committed"]
    assert (stored(state, POD).devices, stored(state, POD).bound) == ((DEVICE,), mib(55))


def test_the_status_rule_holds_only_while_the_devices_stay() -> None:
    state = limited()
    apply(state, seen(1, 40, generation=1), seen(2, 10, (DEVICE,), generation=1))
    assert causes(state, seen(3, 20, (DEVICE,), generation=1)) == []
    assert causes(state, seen(4, 40, generation=1)) == ["Observed unallocated"]


@pytest.mark.parametrize("key", [CLAIM, POD])
def test_an_observed_claim_counts_in_full_where_only_reviewed_envelopes_do(key: str) -> None:
    state = limited(asked_only=True)
    apply(state, seen(1, 40, key=key))
    assert stored(state, key).admitted is None
    assert state.used == [40]


def test_an_envelope_counts_its_reviewed_part_there() -> None:
    """This is the control of the test above."""
    state = limited(asked_only=True)
    apply(state, seen(1, 40, key="deployments.apps/web"))
    assert stored(state, "deployments.apps/web").admitted == {}
    assert state.used == [0]


def test_devices_for_administration_are_recorded_without_a_charge() -> None:
    state = limited()
    admin = msgspec.structs.replace(DEVICE, admin=True)
    assert causes(state, seen(1, 0, (admin,))) == ["Observed allocated"]
    assert (state.used, stored(state).devices) == ([0], (admin,))
    assert causes(state, commands.End(TEAM, CLAIM, "u", 2, "deleted")) == ["Released deleted"]


def test_an_object_has_a_bounded_number_of_devices() -> None:
    state = limited()
    apply(state, seen(1, 40, (DEVICE,) * (DEVICES_MAX + 1)))
    assert len(stored(state).devices) == DEVICES_MAX


def test_an_older_log_keeps_the_bound_and_records_no_devices() -> None:
    state = limited()
    state.schema = 4
    steps = [seen(1, 40), seen(2, 10, (DEVICE,)), seen(3, 60, (DEVICE,)), seen(4, 40)]
    assert causes(state, Reserve(TEAM, CLAIM, "u", mib(40)), *steps) == [
        "Reserved",
        "Committed",
        "Observed unreserved",
        "Committed",
    ]
    assert (stored(state).devices, stored(state).bound, state.used) == ((), None, [40])


def test_a_claim_may_not_draw_from_a_root() -> None:
    state = limited()
    with pytest.raises(InvariantError, match=f"{CLAIM} draws from deployments.apps/web"):
        apply(state, seen(1, 40, root="deployments.apps/web"))


def test_a_denial_names_the_resource_claim() -> None:
    state = limited()
    denial = tell(state, Reserve(TEAM, CLAIM, "u", mib(101), asker=commands.Asker("ResourceClaim")))
    assert isinstance(denial, Denial)
    assert denial.message.startswith(
        "namespace team is not allowed that much GPU memory: resource claim shared would need 101"
    )
    denial = tell(state, Reserve(TEAM, CLAIM, "u", mib(1), unknown=MEMORY))
    assert isinstance(denial, Denial)
    assert denial.message.startswith("resource claim shared asks for a whole card")


def test_a_committed_event_without_devices_is_one_without_any() -> None:
    assert events.Committed(TEAM, CLAIM, "u", 1).devices == ()
