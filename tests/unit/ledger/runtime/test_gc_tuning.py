"""The tuned garbage collector: how many objects it examines at a stretch, and what is left out."""

import gc
import weakref
from collections.abc import Iterator
from typing import Any

import pytest

from ledger.runtime import gc_tuning

EXAMINED_MAX = 7_000
"""New objects that a collection may examine: a thousand take 0.1 to 0.3 ms."""

OLDER_MAX = 50_000
"""Objects that survived once, and that a collection may examine together with new ones."""


@pytest.fixture
def tuned() -> Iterator[None]:
    before = gc.get_threshold()
    gc_tuning.collect_less_often()
    gc_tuning.freeze_existing()
    yield
    gc.set_threshold(*before)
    gc.unfreeze()


@pytest.mark.usefixtures("tuned")
def test_young_collections_stay_short_when_the_state_grows() -> None:
    examined: dict[int, list[int]] = {0: [], 1: []}

    def on_collection(phase: str, info: dict[str, int]) -> None:
        generation = info["generation"]
        if phase == "start" and generation in examined:
            younger = range(generation + 1)
            examined[generation].append(sum(len(gc.get_objects(each)) for each in younger))

    gc.callbacks.append(on_collection)
    kept: list[list[Any]] = [[] for _ in range(200_000)]
    gc.callbacks.remove(on_collection)
    assert len(kept) == 200_000
    assert len(examined[0]) >= 20
    assert max(examined[0]) <= EXAMINED_MAX
    assert len(examined[1]) >= 4
    assert max(examined[1]) <= OLDER_MAX


class Cycle:
    """An object that only the collector can free."""

    def __init__(self) -> None:
        self.itself = self


@pytest.fixture
def thawed() -> Iterator[None]:
    """Leave no object frozen for other tests."""
    yield
    gc.enable()
    gc.unfreeze()


@pytest.mark.usefixtures("thawed")
def test_a_read_state_is_frozen_without_a_collection() -> None:
    frozen = gc.get_freeze_count()
    with gc_tuning.freeze_afterwards():
        assert not gc.isenabled()
        state = [[number] for number in range(1_000)]
    assert gc.isenabled()
    assert gc.get_freeze_count() >= frozen + len(state)


@pytest.mark.usefixtures("thawed")
def test_nothing_is_frozen_when_the_reading_fails() -> None:
    frozen = gc.get_freeze_count()
    with pytest.raises(OSError, match="unreachable"), gc_tuning.freeze_afterwards():
        raise OSError("unreachable")
    assert gc.isenabled()
    assert gc.get_freeze_count() == frozen


@pytest.mark.usefixtures("thawed")
def test_garbage_from_before_the_reading_is_not_frozen() -> None:
    gone = weakref.ref(Cycle())
    with gc_tuning.freeze_afterwards():
        pass
    assert gone() is None
