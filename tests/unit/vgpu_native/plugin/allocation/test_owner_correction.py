"""Owner correction replaces assumed owners by the kubelet's, and keeps assigned ones."""

from pathlib import Path

import msgspec
import pytest
from support.harness.device_plugin import FakePlacements, container, settings_in, share

from vgpu_native.plugin.allocation import allocation_store as kept
from vgpu_native.plugin.allocation import owner_correction
from vgpu_native.plugin.allocation.allocation_store import Allocation, AllocationStore, owner_of
from vgpu_native.plugin.allocation.likely_container import containers_with_cards
from vgpu_native.plugin.kubelet.kubelet_checkpoint import CheckpointEntry
from vgpu_native.plugin.kubelet.kubelet_state import KubeletState
from vgpu_native.plugin.kubelet.pod_resources import DeviceHolder

ASSUMED, TRUE = container("a", share(0)), container("b", share(0))
LATER = 2**60


@pytest.fixture
def allocations(tmp_path: Path) -> AllocationStore:
    store = AllocationStore(tmp_path)
    store.load()
    return store


@pytest.fixture
def kubelet(tmp_path: Path) -> KubeletState:
    return KubeletState(settings_in(tmp_path), FakePlacements(ASSUMED, TRUE))


def assumed(allocations: AllocationStore, *, tied: bool = False) -> Allocation:
    """Store an allocation with the first pod as its assumed owner."""
    made = allocations.make(["A-0"], cdi=False)
    made = msgspec.structs.replace(made, owner=owner_of(ASSUMED), tied=tied)
    allocations.put(made)
    return made


def checkpoint_of(allocation: Allocation, uid: str) -> list[CheckpointEntry]:
    """Return a checkpoint that names a pod as the owner of an allocation."""
    return [CheckpointEntry(uid, "main", frozenset(allocation.ids), allocation.token)]


def test_an_assumed_owner_is_replaced_by_the_checkpoints(
    allocations: AllocationStore, kubelet: KubeletState
) -> None:
    made = assumed(allocations)
    owner_correction.correct_by_checkpoint(
        allocations, kubelet, checkpoint_of(made, "b-uid"), LATER
    )
    assert allocations.all()[0].owner == owner_of(TRUE)


def test_the_checkpoints_owner_is_kept_when_the_ledger_lacks_the_pod(
    allocations: AllocationStore, kubelet: KubeletState
) -> None:
    made = assumed(allocations)
    owner_correction.correct_by_checkpoint(
        allocations, kubelet, checkpoint_of(made, "c-uid"), LATER
    )
    assert containers_with_cards(allocations.all(), LATER, None) == {("c-uid", "main")}


def test_an_assumed_owner_is_dropped_when_the_checkpoint_lacks_it(
    allocations: AllocationStore, kubelet: KubeletState
) -> None:
    made = assumed(allocations)
    owner_correction.correct_by_checkpoint(allocations, kubelet, [], made.time + 1)
    assert containers_with_cards(allocations.all(), made.time + 1, []) == {ASSUMED.key}
    owner_correction.correct_by_checkpoint(allocations, kubelet, [], LATER)
    assert containers_with_cards(allocations.all(), LATER, []) == set()
    assert containers_with_cards(allocations.all(), LATER, None) == set()


def test_an_assigned_allocation_is_unchanged(
    allocations: AllocationStore, kubelet: KubeletState
) -> None:
    made = assumed(allocations, tied=True)
    for entries in ([], checkpoint_of(made, "b-uid")):
        owner_correction.correct_by_checkpoint(allocations, kubelet, entries, LATER)
        assert allocations.all() == [made]


def test_a_holder_is_the_newest_pod_when_several_have_its_name(tmp_path: Path) -> None:
    old, new = (msgspec.structs.replace(TRUE, uid=str(time), time=time) for time in (1, 2))
    holder = DeviceHolder("team", "b", "main", frozenset({"A-0"}))
    for order in ([old, new], [new, old]):
        assert KubeletState(settings_in(tmp_path), FakePlacements(*order)).named(holder) == new


def test_order_and_owners_are_unchanged_when_the_clock_is_set_back(
    allocations: AllocationStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    times = iter((LATER, 10))
    monkeypatch.setattr(kept, "_now", lambda: next(times))
    before, after = (allocations.make(["A-0"], cdi=False) for _ in range(2))
    for allocation, of in ((before, ASSUMED), (after, TRUE)):
        allocations.put(msgspec.structs.replace(allocation, owner=owner_of(of)))
    assert [allocation.token for allocation in allocations.all()] == [before.token, after.token]
    latest = allocations.latest()
    assert latest is not None
    assert latest.token == after.token
    # The kubelet has not stored the older allocation, and will not.
    assert containers_with_cards(allocations.all(), 10, ()) == {TRUE.key}
