"""A log that comes back must be the one that went away, and a writer that is stopped stays so."""

import asyncio

import pytest
from support.harness.replicas import running

from ledger.core.model import commands
from ledger.core.model.denials import Denial, Reason
from ledger.log.ledger_port import Accepted
from ledger.log.memory_log import CallFate, Fault, MemoryStore


def reserve(number: int) -> commands.Reserve:
    return commands.Reserve("c1/red", f"pods/p{number}", f"uid-{number}", {"nvidia.com/gpu": 1})


class Outage:
    """Faults of every call, or of appends only, while `fate` is set."""

    def __init__(self) -> None:
        self.fate = CallFate.DELIVERED
        self.appends_only = False
        self.struck = asyncio.Event()

    def strike(self, call: str) -> Fault:
        if self.fate is CallFate.DELIVERED or (self.appends_only and call != "append"):
            return Fault()
        self.struck.set()
        return Fault(self.fate)


async def foreign(count: int) -> list[bytes]:
    """Return the records of another log."""
    store = MemoryStore()
    async with running(store) as writer:
        for number in range(count):
            await writer.submit(reserve(100 + number))
    return store.records


@pytest.mark.parametrize("more", [0, 1], ids=["as long", "longer"])
async def test_another_log_in_the_place_of_the_lost_one_stops_the_writer(more: int) -> None:
    """As after a power cut: the end is lost, and a replica that never saw it writes a new one."""
    store, outage = MemoryStore(), Outage()
    async with running(store, faults=outage) as writer:
        await writer.submit(reserve(1))
        await writer.submit(reserve(2))
        outage.fate = CallFate.UNREACHABLE
        await asyncio.wait_for(outage.struck.wait(), 10)
        store.records[1:] = (await foreign(2 + more))[1:]
        count = len(store.records)
        outage.fate = CallFate.DELIVERED
        answer = await writer.submit(reserve(3))
        assert isinstance(answer, Denial)
        assert answer.reason is Reason.LEDGER_STOPPED
    assert len(store.records) == count


async def test_an_unclear_record_is_not_sent_again_to_another_log() -> None:
    store, outage = MemoryStore(), Outage()
    async with running(store, faults=outage) as writer:
        await writer.submit(reserve(1))
        await writer.submit(reserve(2))
        other = await foreign(2)
        outage.appends_only, outage.fate = True, CallFate.REQUEST_LOST
        asking = asyncio.ensure_future(writer.submit(reserve(3)))
        await asyncio.wait_for(outage.struck.wait(), 10)
        store.records[:] = other
        outage.fate = CallFate.DELIVERED
        answer = await asking
        assert isinstance(answer, Denial)
        assert answer.reason is Reason.LEDGER_STOPPED
    assert store.records == other


async def test_a_log_that_comes_back_as_it_was_is_written_on() -> None:
    store, outage = MemoryStore(), Outage()
    async with running(store, faults=outage) as writer:
        await writer.submit(reserve(1))
        outage.fate = CallFate.UNREACHABLE
        asking = asyncio.ensure_future(writer.submit(reserve(2)))
        await asyncio.wait_for(outage.struck.wait(), 10)
        outage.fate = CallFate.DELIVERED
        assert isinstance(await asking, Accepted)
    assert len(store.records) == 2


async def test_a_writer_that_is_stopped_while_the_log_is_away_appends_nothing() -> None:
    store, outage = MemoryStore(), Outage()
    async with running(store, faults=outage) as writer:
        await writer.submit(reserve(1))
        outage.fate = CallFate.UNREACHABLE
        asking = asyncio.ensure_future(writer.submit(reserve(2)))
        await asyncio.wait_for(outage.struck.wait(), 10)
        writer.stop("position 1: it was changed")
        outage.fate = CallFate.DELIVERED
        answer = await asyncio.wait_for(asking, 10)
        assert isinstance(answer, Denial)
        assert answer.reason is Reason.LEDGER_STOPPED
    assert len(store.records) == 1
