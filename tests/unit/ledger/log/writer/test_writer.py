"""The writer on an in-memory log that fails in every way a real one does."""

import asyncio

import msgspec
import pytest
from support.harness.replicas import QUICK, running

from ledger.core import invariants, snapshot_format
from ledger.core.decide import decider
from ledger.core.model import accounts, commands, events
from ledger.core.model.denials import Denial, Reason
from ledger.core.model.state import State
from ledger.log import record_schema, records
from ledger.log.ledger_port import Accepted
from ledger.log.memory_log import CallFate, Fault, MemoryStore
from ledger.log.writer import denial_log
from ledger.log.writer.writer import Writer
from ledger.log.writer.writer_observer import WriterObserver
from ledger.log.writer.writer_settings import WriterSettings

GPU = "nvidia.com/gpu"


class Script:
    """Faults of the first appends, in order; everything else is delivered."""

    def __init__(self, *fates: CallFate, late: float = 0.0) -> None:
        self.fates = list(fates)
        self.late = late

    def strike(self, call: str) -> Fault:
        if call == "append" and self.fates:
            return Fault(self.fates.pop(0), late=self.late)
        return Fault()


class Counting(WriterObserver):
    def __init__(self) -> None:
        self.conflicts = 0
        self.ambiguities = 0
        self.groups: list[int] = []

    def conflicted(self) -> None:
        self.conflicts += 1

    def ambiguous(self) -> None:
        self.ambiguities += 1

    def batch_stored(self, commands: int, record_bytes: int, seconds: float) -> None:
        self.groups.append(commands)


def limits(gpus: int, namespace: str = "red") -> commands.SetLimits:
    account = accounts.quota("c1", namespace, "main")
    return commands.SetLimits(account, (f"c1/{namespace}",), {f"requests.{GPU}": gpus})


def reserve(number: int, gpus: int = 1, namespace: str = "red") -> commands.Reserve:
    return commands.Reserve(f"c1/{namespace}", f"pods/p{number}", f"uid-{number}", {GPU: gpus})


def folded(store: MemoryStore) -> State:
    state = State()
    for position, payload in enumerate(store.records, 1):
        records.fold(state, position, payload)
    return state


async def used(writer: Writer) -> int:
    return writer.state.used[0]


async def test_an_acceptance_is_in_the_log_when_it_is_answered() -> None:
    store = MemoryStore()
    async with running(store) as writer:
        await writer.submit(limits(2))
        answer = await writer.submit(reserve(1))
        assert isinstance(answer, Accepted)
        assert answer.changed
        assert answer.position == len(store.records) == 2


async def test_what_queued_up_goes_into_one_record() -> None:
    store, observer = MemoryStore(), Counting()
    async with running(store, observer=observer) as writer:
        await asyncio.gather(*(writer.submit(reserve(number)) for number in range(50)))
    assert sum(observer.groups) == 50
    assert len(store.records) <= 2


async def test_a_group_never_admits_more_than_the_limit() -> None:
    store = MemoryStore()
    async with running(store) as writer:
        await writer.submit(limits(10))
        answers = await asyncio.gather(*(writer.submit(reserve(number)) for number in range(50)))
    assert sum(isinstance(answer, Accepted) for answer in answers) == 10
    assert folded(store).used == [10]


async def test_two_writers_share_a_log_without_exceeding_a_limit() -> None:
    store = MemoryStore()
    first_sees, second_sees = Counting(), Counting()
    # Without a refresh in between, the second writer learns of the first only by a conflict.
    seldom = msgspec.structs.replace(QUICK, refresh_seconds=3_600.0)
    async with (
        running(store, observer=first_sees, settings=seldom) as first,
        running(store, observer=second_sees, settings=seldom) as second,
    ):
        await first.submit(limits(30))
        await asyncio.gather(
            *((first, second)[number % 2].submit(reserve(number)) for number in range(100))
        )
    assert folded(store).used == [30]
    assert first_sees.conflicts + second_sees.conflicts > 0


async def test_a_record_whose_acknowledgement_was_lost_is_not_written_twice() -> None:
    store, observer = MemoryStore(), Counting()
    async with running(store, faults=Script(CallFate.ACK_LOST), observer=observer) as writer:
        answer = await writer.submit(limits(2))
    assert isinstance(answer, Accepted)
    assert observer.ambiguities == 1
    assert len(store.records) == 1


async def test_a_record_that_never_arrived_is_sent_again() -> None:
    store = MemoryStore()
    faults = Script(CallFate.REQUEST_LOST, CallFate.REQUEST_LOST, CallFate.UNREACHABLE)
    async with running(store, faults=faults) as writer:
        answer = await writer.submit(limits(2))
    assert isinstance(answer, Accepted)
    assert len(store.records) == 1


async def test_a_record_that_arrives_late_is_applied_once() -> None:
    store = MemoryStore()
    async with running(store, faults=Script(CallFate.LATE, late=0.02)) as writer:
        assert isinstance(await writer.submit(limits(2)), Accepted)
        assert isinstance(await writer.submit(reserve(1)), Accepted)
        await asyncio.sleep(0.05)
    assert folded(store).used == [1]
    assert len(store.records) == 2


async def test_an_outage_is_answered_in_time_and_leaves_nothing_behind() -> None:
    store = MemoryStore()
    settings = WriterSettings(
        refresh_seconds=0.01, retry_seconds=0.001, retry_seconds_max=0.01, command_seconds_max=0.05
    )
    faults = Script(*[CallFate.UNREACHABLE] * 1_000)
    async with running(store, faults=faults, settings=settings) as writer:
        answer = await writer.submit(limits(2))
        assert isinstance(answer, Denial)
        assert answer.reason is Reason.LEDGER_UNAVAILABLE
        assert answer.transient
        faults.fates.clear()
        assert isinstance(await writer.submit(limits(2)), Accepted)
    assert len(store.records) == 1


async def test_a_denial_is_decided_on_what_others_released_before_it_was_asked() -> None:
    store = MemoryStore()
    idle = WriterSettings(refresh_seconds=60.0)
    async with running(store) as first, running(store, settings=idle) as second:
        await first.submit(limits(1))
        await first.submit(reserve(1))
        assert isinstance(await second.submit(reserve(2)), Denial)
        await first.submit(commands.Refute("c1/red", "pods/p1", "uid-1", 0))
        assert isinstance(await second.submit(reserve(2)), Accepted)


async def test_a_dry_run_is_decided_like_the_real_thing_and_writes_nothing() -> None:
    store = MemoryStore()
    async with running(store) as writer:
        await writer.submit(limits(1))
        assert isinstance(await writer.submit(reserve(1), dry_run=True), Accepted)
        assert isinstance(await writer.submit(reserve(1, gpus=2), dry_run=True), Denial)
    assert len(store.records) == 1
    assert store.denials == []


async def test_a_log_that_lost_its_tail_stops_the_writer() -> None:
    store = MemoryStore()
    async with running(store) as writer:
        await writer.submit(limits(5))
        await writer.submit(reserve(1))
        del store.records[1:]
        answer = await writer.submit(reserve(2))
        assert isinstance(answer, Denial)
        assert answer.reason is Reason.LEDGER_STOPPED
        assert writer.stopped is not None
        assert "records are missing" in writer.stopped
        assert isinstance(await writer.submit(reserve(3)), Denial)
    assert len(store.records) == 1


async def test_a_log_that_is_behind_for_a_moment_is_waited_for() -> None:
    store = MemoryStore()
    settings = msgspec.structs.replace(QUICK, behind_seconds_max=5.0)
    async with running(store, settings=settings) as writer:
        await writer.submit(limits(5))
        await writer.submit(reserve(1))
        missing = store.records.pop()
        waiting = asyncio.ensure_future(writer.submit(reserve(2)))
        while writer.unavailable is None:  # noqa: ASYNC110 - the writer finds out by itself
            await asyncio.sleep(0)
        assert "may be behind" in writer.unavailable
        store.records.append(missing)
        assert isinstance(await waiting, Accepted)
        assert writer.stopped is None
    assert folded(store).used == [2]


class Broken:
    """A network on which nothing arrives while it is down."""

    def __init__(self) -> None:
        self.down = False

    def strike(self, call: str) -> Fault:
        return Fault(CallFate.UNREACHABLE) if self.down else Fault()


async def test_long_outage_is_answered_at_once_and_ends_by_itself() -> None:
    store, network = MemoryStore(), Broken()
    settings = msgspec.structs.replace(QUICK, command_seconds_max=60.0, outage_seconds=0.05)
    async with running(store, faults=network, settings=settings) as writer:
        await writer.submit(limits(5))
        network.down = True
        async with asyncio.timeout(10):
            while not isinstance(answer := await _hasty(writer), Denial):  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        assert (answer.reason, answer.transient) == (Reason.LEDGER_UNAVAILABLE, True)
        network.down = False
        async with asyncio.timeout(10):
            while writer.unavailable is not None:  # noqa: ASYNC110 - the writer looks by itself
                await asyncio.sleep(0.01)
        assert isinstance(await writer.submit(reserve(2)), Accepted)


async def _hasty(writer: Writer) -> Accepted | Denial | None:
    """Ask; None when the answer is not there at once."""
    try:
        async with asyncio.timeout(0.02):
            return await writer.submit(reserve(1))
    except TimeoutError:
        return None


async def test_a_record_of_a_newer_schema_stops_writing() -> None:
    store = MemoryStore()
    async with running(store) as writer:
        await writer.submit(limits(5))
        newer = bytearray(store.records[0])
        newer[1] = record_schema.SCHEMA + 1
        store.records.append(bytes(newer))
        answer = await writer.submit(reserve(1))
        assert isinstance(answer, Denial)
        assert writer.stopped is not None
        assert "upgrade" in writer.stopped


async def test_a_full_queue_answers_at_once_and_spares_other_namespaces() -> None:
    store = MemoryStore()
    settings = WriterSettings(queue_commands_max=6, queue_namespace_max=3, refresh_seconds=0.01)
    async with running(store, settings=settings) as writer:
        answers = await asyncio.gather(
            *(writer.submit(reserve(number)) for number in range(10)),
            *(writer.submit(reserve(number, namespace="blue")) for number in range(3)),
        )
    refused = [answer for answer in answers if isinstance(answer, Denial)]
    assert len(refused) == 7
    assert {denial.reason for denial in refused} == {Reason.OVERLOADED}
    assert all(isinstance(answer, Accepted) for answer in answers[10:])


class Slow:
    """Records are under way for a moment when they are read."""

    def strike(self, call: str) -> Fault:
        return Fault(after=0.05 if call == "read" else 0.0)


async def test_refresh_requested_during_a_refresh_is_done_again() -> None:
    store, seldom = MemoryStore(), WriterSettings(refresh_seconds=30.0)
    async with (
        running(store) as other,
        running(store, faults=Slow(), settings=seldom) as idle,
        asyncio.timeout(5),
    ):
        for number in range(2):
            await other.submit(reserve(number))
            idle.request_refresh()
            await asyncio.sleep(0.01)
        while idle.state.position < 2:  # noqa: ASYNC110 - the state has no event
            await asyncio.sleep(0.01)


async def test_a_decision_that_contradicts_the_state_is_refused_alone(monkeypatch) -> None:
    store = MemoryStore()
    honest = commands.End("c1/red", "pods/none", "uid-none", 1, "deleted")

    def decide(state, command):
        if command is honest:
            return [events.Released("c1/red", "pods/none", "uid-none", 0, "deleted")]
        return real(state, command)

    real = decider.HANDLERS[commands.End]
    monkeypatch.setitem(decider.HANDLERS, commands.End, decide)
    async with running(store) as writer:
        poisoned, healthy = await asyncio.gather(writer.submit(honest), writer.submit(reserve(1)))
    assert isinstance(poisoned, Denial)
    assert isinstance(healthy, Accepted)
    assert list(invariants.violations(folded(store))) == []


async def test_balance_beyond_64_bits_refuses_one_command_only() -> None:
    store = MemoryStore()
    seen = [commands.Observe("c/n", f"pods/{n}", f"u{n}", 1, {"memory": 2**53}) for n in range(520)]
    limit = commands.SetLimits("quota/c/n/q", ("c/n",), {"requests.memory": 1, "memory": 1})
    async with running(store) as writer:
        for observation in seen:
            assert isinstance(await writer.submit(observation), Accepted)
        refused = await writer.submit(limit)
        assert isinstance(await writer.submit(reserve(1)), Accepted)
    assert isinstance(refused, Denial)
    assert refused.reason is Reason.INTERNAL_ERROR
    assert list(invariants.violations(folded(store))) == []
    assert snapshot_format.encode(writer.state) == snapshot_format.encode(folded(store))


async def test_a_defect_in_a_rule_costs_one_command_and_not_the_service(monkeypatch) -> None:
    store, real = MemoryStore(), decider.HANDLERS[commands.Reserve]

    def decide(state, command):
        if getattr(command, "uid", "") == "uid-1":
            raise AttributeError("a defect")
        return real(state, command)

    monkeypatch.setitem(decider.HANDLERS, commands.Reserve, decide)
    async with running(store) as writer:
        poisoned, healthy = await asyncio.gather(
            writer.submit(reserve(1)), writer.submit(reserve(2))
        )
        assert writer.stopped is None
    assert isinstance(poisoned, Denial)
    assert poisoned.reason is Reason.INTERNAL_ERROR
    assert "a defect" in poisoned.message
    assert isinstance(healthy, Accepted)


async def test_denials_are_kept_with_their_decision() -> None:
    store = MemoryStore()
    async with running(store) as writer:
        await writer.submit(limits(1))
        denial = await writer.submit(reserve(1, gpus=2))
        assert isinstance(denial, Denial)
        async with asyncio.timeout(20):
            while not store.denials:
                await store.news()
    kept = denial_log.decode(store.denials[0].payload)
    assert kept.denial == denial
    assert kept.uid == "uid-1"


async def test_record_times_never_go_back_with_the_clock() -> None:
    store, clock = MemoryStore(), iter([5, 3, 9, 1, 1, 1, 1, 1, 1])
    async with running(store, now=lambda: next(clock, 1)) as writer:
        for number in range(3):
            await writer.submit(reserve(number))
    times = [records.decode(payload)[0].time for payload in store.records]
    assert times == sorted(times)


async def test_a_stopped_writer_leaves_the_state_as_the_log_has_it() -> None:
    store = MemoryStore()

    class Hanging:
        def strike(self, call: str) -> Fault:
            return Fault(before=10.0) if call == "append" else Fault()

    async with running(store) as first:
        await first.submit(limits(5))
    async with running(store, faults=Hanging()) as second:
        task = asyncio.ensure_future(second.submit(reserve(1)))
        await asyncio.sleep(0.01)
    assert isinstance(await task, Denial)
    assert snapshot_format.encode(second.state) == snapshot_format.encode(folded(store))


@pytest.mark.parametrize("size_max", [600, 1_500])
async def test_a_group_larger_than_a_record_is_split(size_max: int) -> None:
    store, settings = MemoryStore(), WriterSettings(record_bytes_max=size_max, refresh_seconds=0.01)
    async with running(store, settings=settings) as writer:
        answers = await asyncio.gather(*(writer.submit(reserve(number)) for number in range(60)))
    assert all(isinstance(answer, Accepted) for answer in answers)
    assert max(map(len, store.records)) <= size_max
    assert len(store.records) > 1
    assert snapshot_format.encode(writer.state) == snapshot_format.encode(folded(store))
