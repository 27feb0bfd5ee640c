"""The reserve of the log, and records that do not fit."""

import asyncio

import msgspec
import pytest
from support.harness.replicas import QUICK, running
from support.harness.waiting import until

from ledger.core.model import commands
from ledger.core.model.denials import Denial, Reason
from ledger.log.ledger_port import Accepted
from ledger.log.log_port import RecordTooLarge
from ledger.log.memory_log import CallFate, Fault, MemoryStore
from ledger.log.writer.log_capacity import LogCapacity, TokenBuckets, is_new_promise
from ledger.log.writer.writer import Writer

GPU = {"nvidia.com/gpu": 1}
SIZE_MAX = 400_000
SETTINGS = msgspec.structs.replace(QUICK, probe_seconds=0.02, probe_seconds_max=0.02)


def reserve(number: int, owner: int = 4_000) -> commands.Reserve:
    return commands.Reserve("c1/red", f"pods/p{number}", f"uid-{number}", GPU, owner="o" * owner)


def seen(number: int, actor: int = 1_000) -> commands.Observe:
    key = f"pods/p{number}"
    return commands.Observe("c1/red", key, f"uid-{number}", 1, GPU, actor="a" * actor)


async def fill(writer: Writer) -> int:
    """Reserve until the log refuses; return how many reservations there are."""
    for number in range(10_000):
        answer = await writer.submit(reserve(number))
        if isinstance(answer, Denial):
            assert answer.reason is Reason.LOG_FULL
            return number
    raise AssertionError("the log was never full")


async def test_the_last_tenth_of_the_log_takes_no_reservation_and_every_release() -> None:
    store = MemoryStore(size_max=SIZE_MAX)
    async with running(store, settings=SETTINGS) as writer:
        count = await fill(writer)
        assert 0.88 * SIZE_MAX < store.size < 0.92 * SIZE_MAX
        denial = await writer.submit(reserve(count))
        assert isinstance(denial, Denial)
        assert (denial.reason, denial.transient) == (Reason.LOG_FULL, False)
        assert f"of its maximum of {SIZE_MAX} bytes" in denial.message
        assert "log_bytes_max" in denial.remedy
        for number in range(count):
            refuted = commands.Refute("c1/red", f"pods/p{number}", f"uid-{number}", 0)
            assert isinstance(await writer.submit(refuted), Accepted)
        assert writer.unavailable is None
        assert not writer.state.namespaces["c1/red"].entries
        store.size_max = 2 * SIZE_MAX
        await until(lambda: writer.capacity.extent.size_max == 2 * SIZE_MAX)
        assert isinstance(await writer.submit(reserve(count)), Accepted)


async def test_a_dry_run_is_answered_that_the_log_is_full() -> None:
    store = MemoryStore(size_max=SIZE_MAX)
    async with running(store, settings=SETTINGS) as writer:
        count = await fill(writer)
        denial = await writer.submit(reserve(count), dry_run=True)
    assert isinstance(denial, Denial)
    assert denial.reason is Reason.LOG_FULL


@pytest.mark.parametrize(
    ("command", "is_new"),
    [
        (commands.Reserve("n", "k", "u", GPU), True),
        (commands.Place("n", "k", "u", "c/node", ()), True),
        (commands.Resize("n", "k", "u", (), {}), True),
        (commands.MakeRoom("n", "k", "u", "c/node", (), ()), True),
        (commands.Place("n", "k", "u", "c/node", (), seen=True), False),
        (commands.Observe("n", "k", "u", 1, GPU), False),
        (commands.End("n", "k", "u", 1, "deleted"), False),
        (commands.Refute("n", "k", "u", 0), False),
        (commands.SetLimits("quota/c/n/q", ("c/n",), {}), False),
        (commands.Unplace("n", "k", "u", "c/node", "unbound"), False),
    ],
)
def test_only_what_is_new_is_kept_out_of_the_reserve(
    command: commands.AnyCommand, is_new: bool
) -> None:
    assert is_new_promise(command) is is_new


async def test_a_log_at_its_maximum_refuses_at_once_until_it_is_raised() -> None:
    store = MemoryStore(size_max=SIZE_MAX)
    async with running(store, settings=SETTINGS) as writer:
        await writer.submit(reserve(0))
        store.size_max = store.size + 10
        await until(lambda: writer.unavailable is not None)
        assert "maximum" in str(writer.unavailable)
        stored = len(store.records)
        for command in (reserve(1), commands.Refute("c1/red", "pods/p0", "uid-0", 0)):
            denial = await writer.submit(command)
            assert isinstance(denial, Denial)
            assert denial.reason is Reason.LOG_FULL
            assert "maximum" in denial.message
        assert len(store.records) == stored
        store.size_max = SIZE_MAX
        await until(lambda: writer.unavailable is None)
        assert isinstance(await writer.submit(reserve(1)), Accepted)


async def test_a_log_that_was_full_when_it_was_opened_is_named_so() -> None:
    store = MemoryStore()
    async with running(store) as writer:
        await writer.submit(reserve(0))
    store.size_max = store.size + 10
    async with running(store, settings=SETTINGS) as writer:
        denial = await writer.submit(reserve(1))
        assert isinstance(denial, Denial)
        assert denial.reason is Reason.LOG_FULL


async def test_a_record_for_which_there_is_no_room_hurts_itself_only() -> None:
    """The rest of the reserve goes on serving what is smaller."""
    store = MemoryStore(size_max=SIZE_MAX)
    async with running(store, settings=SETTINGS) as writer:
        await fill(writer)
        large = seen(10_000, actor=60_000)
        small = commands.Refute("c1/red", "pods/p0", "uid-0", 0)
        denial, released = await asyncio.gather(writer.submit(large), writer.submit(small))
        assert isinstance(denial, Denial)
        assert denial.reason is Reason.LOG_FULL
        assert isinstance(released, Accepted)
        assert writer.unavailable is None


@pytest.mark.parametrize("first", [True, False])
async def test_a_command_that_fits_no_record_hurts_itself_only(first: bool) -> None:
    store = MemoryStore()
    settings = msgspec.structs.replace(SETTINGS, record_bytes_max=5_000)
    async with running(store, settings=settings) as writer:
        asked = [reserve(number, owner=1_000) for number in range(40)]
        asked.insert(0 if first else 20, reserve(99, owner=5_000))
        answers = await asyncio.gather(*(writer.submit(command) for command in asked))
    refused = [answer for answer in answers if isinstance(answer, Denial)]
    assert [denial.reason for denial in refused] == [Reason.TOO_LARGE]
    assert max(map(len, store.records)) <= 5_000
    # No record is decided again because of it, so they stay as large as may be.
    assert len(store.records) <= 41_000 // 5_000 + 3


async def test_a_server_that_takes_smaller_messages_gets_smaller_records(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    store = MemoryStore()
    store_one = store.store

    def bounded(payload: bytes, expected: int) -> int:
        if len(payload) > 3_000:
            raise RecordTooLarge(len(payload), 3_000)
        return store_one(payload, expected)

    monkeypatch.setattr(store, "store", bounded)
    async with running(store, settings=SETTINGS) as writer:
        asked = [*(reserve(number, owner=1_000) for number in range(40)), reserve(99, owner=5_000)]
        answers = await asyncio.gather(*(writer.submit(command) for command in asked))
        assert isinstance(await writer.submit(reserve(100, owner=1_000)), Accepted)
        assert writer.unavailable is None
    assert [isinstance(answer, Accepted) for answer in answers] == [True] * 40 + [False]


async def test_a_log_that_is_fuller_than_was_known_gets_what_fits() -> None:
    """Another writer filled it since its extent was read."""
    store = MemoryStore(size_max=SIZE_MAX)
    seldom = msgspec.structs.replace(SETTINGS, refresh_seconds=3_600.0)
    async with running(store, settings=seldom) as writer:
        await writer.submit(reserve(0))
        store.size_max = store.size + 6_000
        answers = await asyncio.gather(*(writer.submit(seen(1 + n)) for n in range(20)))
    assert sum(isinstance(answer, Accepted) for answer in answers) >= 1
    refused = {answer.reason for answer in answers if isinstance(answer, Denial)}
    assert refused == {Reason.LOG_FULL}


class Refusing:
    """A server whose account has no room, although the stream has."""

    def __init__(self) -> None:
        self.full, self.appends = False, 0

    def strike(self, call: str) -> Fault:
        if call != "append" or not self.full:
            return Fault()
        self.appends += 1
        return Fault(CallFate.FULL)


async def test_a_log_that_refuses_for_another_reason_is_tried_seldom() -> None:
    store, server = MemoryStore(), Refusing()
    settings = msgspec.structs.replace(SETTINGS, probe_seconds=3_600.0)
    async with running(store, faults=server, settings=settings) as writer:
        await writer.submit(reserve(0))
        server.full = True
        for number in range(20):
            assert isinstance(await writer.submit(reserve(1 + number)), Denial)
        assert server.appends == 1
        assert writer.unavailable is not None


def test_a_log_without_a_maximum_has_no_reserve() -> None:
    capacity = LogCapacity(burst=1, rate=1)
    capacity.add(1, 10**12, {}, now=0.0)
    assert capacity.room is None
    assert not capacity.is_full
    assert not capacity.reaches_reserve(10**12)


def test_some_may_be_added_at_once_and_so_many_per_second_after_that() -> None:
    rates = TokenBuckets(burst=100, rate=10, keys_max=10)
    assert rates.wait("a", 0.0) == 0.0
    rates.take("a", 150, 0.0)
    assert rates.wait("a", 0.0) == 5.0
    assert rates.wait("b", 0.0) == 0.0
    assert rates.wait("a", 4.0) == 1.0
    assert rates.wait("a", 5.0) == 0.0
    rates.take("a", 20, 5.0)
    assert rates.wait("a", 5.0) == 2.0
    assert rates.wait("a", 1000.0) == 0.0


def test_the_number_of_buckets_is_bounded_and_those_that_lack_most_stay() -> None:
    rates = TokenBuckets(burst=1, rate=1, keys_max=8)
    for number in range(100):
        rates.take(f"k{number}", number + 1, 0.0)
        assert len(rates) <= 8
    assert rates.wait("k99", 0.0) == 99.0
