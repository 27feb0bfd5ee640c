"""Submit: a plain function queues the command and returns the future of its answer."""

import asyncio
from typing import Any

import msgspec
import pytest
from support.harness.replicas import QUICK, running

from ledger.core.model import commands
from ledger.core.model.denials import Denial, Reason
from ledger.log import records
from ledger.log.ledger_port import Accepted
from ledger.log.memory_log import MemoryLog, MemoryStore
from ledger.log.writer.batch_decider import FairQueue, Ticket
from ledger.log.writer.writer import Writer

GPU = {"nvidia.com/gpu": 1}


def reserve(number: int) -> commands.Reserve:
    return commands.Reserve("c1/red", f"pods/p{number}", f"uid-{number}", GPU)


async def test_a_submitted_command_is_stored_without_a_waiting_task() -> None:
    store = MemoryStore()
    async with running(store) as writer:
        future = writer.submit(reserve(1))
        assert writer.waiting == 1
        while not future.done():  # noqa: ASYNC110 - a waiting task is what must not be needed
            await asyncio.sleep(0)
        assert isinstance(future.result(), Accepted)
    assert len(store.records) == 1


async def test_a_cancelled_future_takes_its_waiting_command_back() -> None:
    store = MemoryStore()
    async with running(store) as writer:
        dropped, kept = writer.submit(reserve(1)), writer.submit(reserve(2))
        dropped.cancel()
        assert isinstance(await kept, Accepted)
    items = [item for payload in store.records for item in records.decode(payload)[0].items]
    assert [getattr(item.event, "uid", "") for item in items] == ["uid-2"]


async def test_a_future_that_is_cancelled_during_the_append_stops_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    store, append, futures = MemoryStore(), MemoryLog.append, list[asyncio.Future[Any]]()

    async def cancelled(self: MemoryLog, payload: bytes, position: int) -> int:
        futures[0].cancel()
        return await append(self, payload, position)

    monkeypatch.setattr(MemoryLog, "append", cancelled)
    async with running(store) as writer:
        futures += writer.submit(reserve(1)), writer.submit(reserve(2))
        assert isinstance(await futures[1], Accepted)
        assert writer.stopped is None
        assert isinstance(await writer.submit(reserve(3)), Accepted)
    assert [record.group for record, _ in map(records.decode, store.records)] == [2, 1]


async def test_the_group_refuses_a_command_after_its_deadline() -> None:
    store = MemoryStore()
    async with running(store) as writer:
        writer.settings = msgspec.structs.replace(QUICK, command_seconds_max=-1.0)
        late = writer.submit(reserve(1))
        writer.settings = QUICK
        answer = await late
        assert isinstance(answer, Denial)
        assert answer.reason is Reason.LEDGER_UNAVAILABLE
        assert isinstance(await writer.submit(reserve(2)), Accepted)
    assert len(store.records) == 1


async def test_a_stopped_writer_answers_without_a_queue() -> None:
    async with running(MemoryStore()) as writer:
        writer.stop("the log is lost")
        future = writer.submit(reserve(1))
        assert future.done()
        answer = future.result()
        assert isinstance(answer, Denial)
        assert answer.reason is Reason.LEDGER_STOPPED
        assert isinstance(writer, Writer)


async def test_namespaces_take_turns_and_keep_their_own_order() -> None:
    queue = FairQueue(total_max=10, namespace_max=3)
    loop = asyncio.get_running_loop()
    tickets = {
        name: Ticket(reserve(number), False, loop.create_future(), 0.0)
        for number, name in enumerate(("a1", "a2", "a3", "a4", "b1", "c1", "c2"))
    }
    taken = [name for name, ticket in tickets.items() if queue.put(name[0], ticket)]
    assert taken == ["a1", "a2", "a3", "b1", "c1", "c2"]
    named = {id(ticket): name for name, ticket in tickets.items()}
    order = [named[id(queue.take())] for _ in range(queue.size)]
    assert order == ["a1", "b1", "c1", "a2", "c2", "a3"]
    assert queue.size == 0
    assert queue.put("a", tickets["a1"])
    assert queue.take() is tickets["a1"]


async def test_a_namespace_that_may_queue_one_command_queues_one() -> None:
    queue = FairQueue(total_max=10, namespace_max=1)
    ticket = Ticket(reserve(1), False, asyncio.get_running_loop().create_future(), 0.0)
    assert [queue.put("a", ticket), queue.put("a", ticket)] == [True, False]
    assert queue.size == 1
