"""Guesses are put right by what the kubelet has noted, and what is proven is left alone."""

from pathlib import Path

import msgspec
import pytest
from support.harness.device_plugin import FakePlacements, container, settings_in, share

from vgpu_native.plugin.allocation import allocation_store as kept
from vgpu_native.plugin.allocation import owner_correction
from vgpu_native.plugin.allocation.allocation_store import Allocation, AllocationStore, owner_of
from vgpu_native.plugin.kubelet.kubelet_checkpoint import CheckpointEntry
from vgpu_native.plugin.kubelet.kubelet_state import KubeletState
from vgpu_native.plugin.kubelet.pod_resources import DeviceHolder

GUESSED, TRUE = container("a", share(0)), container("b", share(0))
LATER = 2**60


@pytest.fixture
def allocations(tmp_path: Path) -> AllocationStore:
    found = AllocationStore(tmp_path)
    found.load()
    return found


@pytest.fixture
def witness(tmp_path: Path) -> KubeletState:
    return KubeletState(settings_in(tmp_path), FakePlacements(GUESSED, TRUE))


def guessed(allocations: AllocationStore, *, tied: bool = False) -> Allocation:
    """Keep an allocation that is believed to be of the first pod."""
    made = allocations.make(["A-0"], cdi=False)
    made = msgspec.structs.replace(made, owner=owner_of(GUESSED), tied=tied)
    allocations.put(made)
    return made


def noted(allocation: Allocation, uid: str) -> list[CheckpointEntry]:
    """Return a checkpoint that has an allocation as a pod's."""
    return [CheckpointEntry(uid, "main", frozenset(allocation.ids), allocation.token)]


def test_a_guess_becomes_what_the_kubelet_noted(
    allocations: AllocationStore, witness: KubeletState
) -> None:
    made = guessed(allocations)
    owner_correction.correct_by_checkpoint(allocations, witness, noted(made, "b-uid"), LATER)
    assert allocations.all()[0].owner == owner_of(TRUE)


def test_who_is_noted_has_the_answer_though_the_ledger_does_not_know_the_pod(
    allocations: AllocationStore, witness: KubeletState
) -> None:
    made = guessed(allocations)
    owner_correction.correct_by_checkpoint(allocations, witness, noted(made, "c-uid"), LATER)
    assert allocations.given(LATER, None) == {("c-uid", "main")}


def test_a_guess_that_was_not_noted_is_dropped_once_it_would_have_been(
    allocations: AllocationStore, witness: KubeletState
) -> None:
    made = guessed(allocations)
    owner_correction.correct_by_checkpoint(allocations, witness, [], made.time + 1)
    assert allocations.given(made.time + 1, []) == {GUESSED.key}
    owner_correction.correct_by_checkpoint(allocations, witness, [], LATER)
    assert allocations.given(LATER, []) == allocations.given(LATER, None) == set()


def test_what_is_tied_is_left_alone(allocations: AllocationStore, witness: KubeletState) -> None:
    made = guessed(allocations, tied=True)
    for entries in ([], noted(made, "b-uid")):
        owner_correction.correct_by_checkpoint(allocations, witness, entries, LATER)
        assert allocations.all() == [made]


def test_of_pods_of_one_name_the_newest_is_meant(tmp_path: Path) -> None:
    old, new = (msgspec.structs.replace(TRUE, uid=str(time), time=time) for time in (1, 2))
    holder = DeviceHolder("team", "b", "main", frozenset({"A-0"}))
    for order in ([old, new], [new, old]):
        assert KubeletState(settings_in(tmp_path), FakePlacements(*order)).named(holder) == new


def test_a_clock_that_is_put_back_changes_neither_order_nor_who_has_an_answer(
    allocations: AllocationStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    times = iter((LATER, 10))
    monkeypatch.setattr(kept, "_now", lambda: next(times))
    before, after = (allocations.make(["A-0"], cdi=False) for _ in range(2))
    for one, of in ((before, GUESSED), (after, TRUE)):
        allocations.put(msgspec.structs.replace(one, owner=owner_of(of)))
    assert [one.token for one in allocations.all()] == [before.token, after.token]
    latest = allocations.latest()
    assert latest is not None
    assert latest.token == after.token
    # The kubelet has not noted the one of before, and will not.
    assert allocations.given(10, ()) == {TRUE.key}
