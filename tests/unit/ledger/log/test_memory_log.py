"""The faults of the log in memory, which the simulation needs."""

import asyncio
from typing import Any

import pytest

from ledger.log.log_port import MESSAGE_BYTES, Ambiguous, Full, Lost, PositionTaken, Unreachable
from ledger.log.memory_log import CallFate, Fault, MemoryLog, MemoryStore


class Script:
    """Faults in the order given, then none."""

    def __init__(self, *faults: Fault) -> None:
        self.faults = list(faults)
        self.calls: list[str] = []

    def strike(self, call: str) -> Fault:
        """Return the next fault."""
        self.calls.append(call)
        return self.faults.pop(0) if self.faults else Fault()


def clients(*faults: Fault, size_max: int = 0) -> tuple[MemoryStore, MemoryLog]:
    """A store that exists and a client with these faults."""
    store = MemoryStore(exists=True, size_max=size_max)
    return store, MemoryLog(store, Script(*faults))


async def test_a_lost_acknowledgement_is_ambiguous_and_the_record_is_stored() -> None:
    store, log = clients(Fault(CallFate.ACK_LOST))
    with pytest.raises(Ambiguous):
        await log.append(b"a", 0)
    assert store.records == [b"a"]


async def test_a_lost_request_is_ambiguous_and_nothing_is_stored() -> None:
    store, log = clients(Fault(CallFate.REQUEST_LOST))
    with pytest.raises(Ambiguous):
        await log.append(b"a", 0)
    assert store.records == []


async def test_a_late_append_arrives_when_its_position_is_still_free() -> None:
    store, log = clients(Fault(CallFate.LATE, late=0.01))
    with pytest.raises(Ambiguous):
        await log.append(b"late", 0)
    assert store.records == []
    await store.news()
    assert store.records == [b"late"]


async def test_late_append_is_refused_when_another_one_was_faster() -> None:
    store, log = clients(Fault(CallFate.LATE, late=0.01))
    failures: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, what: failures.append(what))
    with pytest.raises(Ambiguous):
        await log.append(b"late", 0)
    await log.append(b"faster", 0)
    await asyncio.sleep(0.03)
    assert (store.records, failures) == ([b"faster"], [])


@pytest.mark.parametrize(
    ("fate", "error"), [(CallFate.UNREACHABLE, Unreachable), (CallFate.FULL, Full)]
)
async def test_a_refused_append_stores_nothing(fate: CallFate, error: type[Exception]) -> None:
    store, log = clients(Fault(fate))
    with pytest.raises(error):
        await log.append(b"a", 0)
    assert store.records == []


async def test_a_conflict_wins_over_a_lost_acknowledgement() -> None:
    _, log = clients(Fault(), Fault(CallFate.ACK_LOST))
    await log.append(b"a", 0)
    with pytest.raises(PositionTaken):
        await log.append(b"b", 0)


async def test_a_delayed_append_may_be_overtaken() -> None:
    store, slow = clients(Fault(before=0.01))
    quick = MemoryLog(store)
    appending = asyncio.create_task(slow.append(b"slow", 0))
    await asyncio.sleep(0)
    await quick.append(b"quick", 0)
    with pytest.raises(PositionTaken):
        await appending
    assert store.records == [b"quick"]


async def test_an_append_cancelled_after_it_arrived_stays_stored() -> None:
    store, log = clients(Fault(after=60))
    appending = asyncio.create_task(log.append(b"a", 0))
    await store.news()
    appending.cancel()
    with pytest.raises(asyncio.CancelledError):
        await appending
    assert await MemoryLog(store).get(1) == b"a"


async def test_a_store_that_is_full_keeps_its_history() -> None:
    store, log = clients(size_max=10 + MESSAGE_BYTES)
    await log.append(b"12345", 0)
    with pytest.raises(Full, match="133 of 138"):
        await log.append(b"123456", 1)
    assert store.records == [b"12345"]


@pytest.mark.parametrize("call", ["extent", "get", "save_snapshot"])
async def test_every_other_call_can_be_unreachable(call: str) -> None:
    _, log = clients(Fault(CallFate.UNREACHABLE))
    arguments: dict[str, list[Any]] = {"get": [1], "save_snapshot": [None]}
    with pytest.raises(Unreachable, match=call):
        await getattr(log, call)(*arguments.get(call, ()))


async def test_snapshots_can_be_unreachable() -> None:
    _, log = clients(Fault(CallFate.UNREACHABLE))
    with pytest.raises(Unreachable, match="load_snapshots"):
        await anext(log.load_snapshots())


async def test_a_follower_outlives_faults_and_misses_nothing() -> None:
    store = MemoryStore(exists=True)
    log = MemoryLog(store, Script(Fault(CallFate.UNREACHABLE), Fault(before=0.01)))
    store.store(b"a", 0)
    batch = await asyncio.wait_for(anext(log.follow(1)), 5)
    assert [entry.payload for entry in batch] == [b"a"]


async def test_a_log_that_lost_its_tail_stops_its_followers() -> None:
    store, log = clients()
    for expected in range(3):
        await log.append(b"x", expected)
    following = log.follow(1)
    assert len(await anext(following)) == 3
    store.records.pop()
    store.wake()
    with pytest.raises(Lost, match="ends at 2, but position 3 was seen"):
        await anext(following)


async def test_the_hook_is_asked_once_for_each_call() -> None:
    store = MemoryStore(exists=True)
    script = Script()
    log = MemoryLog(store, script)
    await log.append(b"a", 0)
    await log.extent()
    assert [batch async for batch in log.read(1, 1)]
    assert script.calls == ["append", "extent", "read"]
