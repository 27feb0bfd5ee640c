"""Opening a log while others write to it."""

import gc
from collections.abc import AsyncGenerator

import pytest
from support.builders.decide_and_fold import record

from ledger.core import snapshot_format
from ledger.core.model import commands
from ledger.core.model.state import State
from ledger.log.log_port import Extent, Lost, Snapshot
from ledger.log.memory_log import MemoryLog, MemoryStore
from ledger.log.recovery import replay


def reserved(number: int) -> list[commands.AnyCommand]:
    return [commands.Reserve("c1/red", f"pods/p{number}", f"uid-{number}", {"nvidia.com/gpu": 1})]


def written(store: MemoryStore, state: State, number: int) -> Snapshot:
    payload = record(state, reserved(number))
    assert payload is not None
    store.store(payload, state.position - 1)
    return Snapshot(state.position, snapshot_format.encode(state))


class Busy(MemoryLog):
    """A log to which another replica writes, and saves a snapshot, between any two calls."""

    def __init__(self, store: MemoryStore, state: State) -> None:
        super().__init__(store)
        self._shared, self._state = store, state

    async def extent(self) -> Extent:
        extent = await super().extent()
        self._write()
        return extent

    async def load_snapshots(self) -> AsyncGenerator[Snapshot, None]:
        async for snapshot in super().load_snapshots():
            self._write()
            yield snapshot

    def _write(self) -> None:
        number = self._state.position
        self._shared.snapshots.append(written(self._shared, self._state, number))


async def test_snapshot_saved_while_the_log_is_opened_is_not_a_lost_tail() -> None:
    store, state = MemoryStore(exists=True), State()
    written(store, state, 0)
    opened = await replay.open_state(Busy(store, state))
    assert opened.position >= 1


async def test_a_snapshot_of_a_record_that_is_gone_is_a_lost_tail() -> None:
    store, state = MemoryStore(exists=True), State()
    written(store, state, 0)
    store.snapshots.append(written(store, state, 1))
    del store.records[1:]
    with pytest.raises(Lost, match="a snapshot of position 2 exists"):
        await replay.open_state(MemoryLog(store))


async def test_an_earlier_state_is_read_without_newer_snapshots() -> None:
    store, state = MemoryStore(exists=True), State()
    for number in range(3):
        store.snapshots.append(written(store, state, number))
    assert (await replay.state_at(MemoryLog(store), 2)).position == 2


async def test_the_older_snapshot_is_read_when_the_newest_is_damaged() -> None:
    store, state = MemoryStore(exists=True), State()
    store.snapshots.append(written(store, state, 0))
    store.snapshots.append(Snapshot(2, written(store, state, 1).payload[:-1]))
    opened = await replay.open_state(MemoryLog(store))
    assert (opened.position, opened.hash) == (state.position, state.hash)
    assert gc.isenabled()
