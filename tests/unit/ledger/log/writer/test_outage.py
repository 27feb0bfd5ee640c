"""A log that can be read and stores nothing: refused at once, until it has stored a record."""

import asyncio

import msgspec
import pytest
from support.harness.replicas import QUICK, running
from support.harness.waiting import until

from ledger.core.model import commands
from ledger.core.model.denials import Denial, Reason
from ledger.log import records
from ledger.log.ledger_port import Accepted
from ledger.log.memory_log import CallFate, Fault, MemoryStore

SETTINGS = msgspec.structs.replace(
    QUICK, command_seconds_max=0.2, stall_seconds=0.05, probe_seconds=0.02, probe_seconds_max=0.02
)
SELDOM = msgspec.structs.replace(SETTINGS, probe_seconds=3_600.0, probe_seconds_max=3_600.0)
DISK = "a NATS server cannot write to its disk (no space left on device)"


def reserve(number: int, owner: str = "") -> commands.Reserve:
    return commands.Reserve(
        "c1/red", f"pods/p{number}", f"uid-{number}", {"nvidia.com/gpu": 1}, owner=owner
    )


class FullDisk:
    """Appends get no answer while `full`; everything else works. `appends` counts them."""

    def __init__(self) -> None:
        self.full, self.appends = False, 0

    def strike(self, call: str) -> Fault:
        if call != "append":
            return Fault()
        self.appends += 1
        return Fault(CallFate.REQUEST_LOST) if self.full else Fault()


@pytest.mark.parametrize("trouble", [DISK, ""], ids=["reported", "not reported"])
async def test_once_an_append_failed_no_command_waits_and_none_is_appended(trouble: str) -> None:
    store, disk = MemoryStore(), FullDisk()
    async with running(store, faults=disk, settings=SELDOM) as writer:
        await writer.submit(reserve(0))
        disk.full, store.trouble = True, trouble
        first = await writer.submit(reserve(1))
        assert isinstance(first, Denial)
        assert first.reason is Reason.LEDGER_UNAVAILABLE
        assert (trouble or "disk of a NATS server may be full") in first.message
        sent = disk.appends
        async with asyncio.timeout(10):
            answers = [await writer.submit(reserve(2 + number)) for number in range(20)]
        assert disk.appends == sent
        assert {answer.reason for answer in answers} == {Reason.LEDGER_UNAVAILABLE}


async def test_reading_the_log_does_not_end_the_outage() -> None:
    store, disk = MemoryStore(), FullDisk()
    reads = 0
    async with running(store, faults=disk, settings=SELDOM) as writer:
        await writer.submit(reserve(0))
        disk.full, store.trouble = True, DISK
        await writer.submit(reserve(1))
        strike = disk.strike

        def count(call: str) -> Fault:
            nonlocal reads
            reads += call == "extent"
            return strike(call)

        disk.strike = count
        await until(lambda: reads > 3)
        assert writer.unavailable == DISK
        assert not writer.is_writable


async def test_the_outage_ends_by_itself_with_a_record_that_promises_nothing() -> None:
    store, disk = MemoryStore(), FullDisk()
    async with running(store, faults=disk, settings=SETTINGS) as writer:
        await writer.submit(reserve(0))
        disk.full, store.trouble = True, DISK
        await writer.submit(reserve(1))
        await until(lambda: disk.appends > 4)
        assert writer.unavailable is not None
        disk.full, store.trouble = False, ""
        await until(lambda: writer.unavailable is None)
        assert records.decode(store.records[1])[0].items == []
        assert isinstance(await writer.submit(reserve(1)), Accepted)


async def test_a_record_of_another_replica_ends_the_outage_too() -> None:
    store, disk = MemoryStore(), FullDisk()
    async with (
        running(store) as other,
        running(store, faults=disk, settings=SELDOM) as writer,
    ):
        await other.submit(reserve(0))
        disk.full, store.trouble = True, DISK
        await writer.submit(reserve(1))
        assert writer.unavailable == DISK
        await other.submit(reserve(2))
        await until(lambda: writer.unavailable is None)


async def test_a_cause_that_only_a_later_probe_finds_is_named() -> None:
    store, disk = MemoryStore(), FullDisk()
    async with running(store, faults=disk, settings=SETTINGS) as writer:
        await writer.submit(reserve(0))
        disk.full = True
        await writer.submit(reserve(1))
        assert "may be full" in str(writer.unavailable)
        sent = disk.appends
        await until(lambda: disk.appends > sent + 1)
        assert "may be full" in str(writer.unavailable)


class Hanging:
    """Appends take for ever."""

    def __init__(self) -> None:
        self.full = False

    def strike(self, call: str) -> Fault:
        return Fault(before=3_600.0) if call == "append" and self.full else Fault()


async def test_an_append_is_given_up_when_a_server_reports_that_it_cannot_write() -> None:
    store, disk = MemoryStore(), Hanging()
    settings = msgspec.structs.replace(SELDOM, command_seconds_max=1_800.0)
    async with running(store, faults=disk, settings=settings) as writer:
        await writer.submit(reserve(0))
        disk.full, store.trouble = True, DISK
        async with asyncio.timeout(60):
            denial = await writer.submit(reserve(1))
        assert isinstance(denial, Denial)
        assert DISK in denial.message


async def test_a_slow_append_is_waited_for_while_no_server_reports_anything() -> None:
    store = MemoryStore()

    class Slow:
        def strike(self, call: str) -> Fault:
            return Fault(before=0.3) if call == "append" else Fault()

    settings = msgspec.structs.replace(SELDOM, command_seconds_max=60.0)
    async with running(store, faults=Slow(), settings=settings) as writer:
        assert isinstance(await writer.submit(reserve(1)), Accepted)
        assert writer.unavailable is None


async def test_a_record_that_is_stored_after_it_was_given_up_is_applied() -> None:
    store = MemoryStore()

    class Late:
        def __init__(self) -> None:
            self.late = False

        def strike(self, call: str) -> Fault:
            if call == "append" and self.late:
                return Fault(CallFate.LATE, late=1.0)
            return Fault()

    faults = Late()
    async with running(store, faults=faults, settings=SELDOM) as writer:
        await writer.submit(reserve(0))
        faults.late = True
        assert isinstance(await writer.submit(reserve(1)), Denial)
        assert writer.unavailable is not None
        await until(lambda: writer.unavailable is None)
        assert writer.state.position == len(store.records) == 2
