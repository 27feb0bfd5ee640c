"""An append without an acknowledgement: found, sent again, or reported as what it is."""

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import cast

import pytest
from simulation.engine.loop import VirtualLoop

from ledger.log.log_port import Ambiguous, Log, LogError, PositionTaken, Unreachable, Unwritable
from ledger.log.writer.exactly_once import ExactlyOnceAppender
from ledger.log.writer.writer_observer import WriterObserver
from ledger.log.writer.writer_settings import WriterSettings

SETTINGS = WriterSettings(
    command_seconds_max=0.4, stall_seconds=0.1, retry_seconds=0.01, refresh_seconds=0.02
)
POSITION = 7
STEPS_MAX = 10_000
OWN, OTHER = b"own", b"other"

Step = Callable[[], Awaitable[bytes | None]]


class ScriptedLog:
    """Answers the calls of each kind with one step after the other, the last one again and again.

    A step of `get` returns the record at the position.
    """

    def __init__(self, *, append: list[Step], get: list[Step]) -> None:
        self.sent = 0
        self.trouble_seconds = 0.0
        self._append, self._get = append, get

    async def append(self, payload: bytes, expected: int) -> int:
        assert (payload, expected) == (OWN, POSITION - 1)
        self.sent += 1
        await _next(self._append)()
        return POSITION

    async def get(self, position: int) -> bytes | None:
        assert position == POSITION
        return await _next(self._get)()

    async def write_trouble(self) -> str:
        await asyncio.sleep(self.trouble_seconds)
        return ""


def _next(steps: list[Step]) -> Step:
    return steps.pop(0) if len(steps) > 1 else steps[0]


def raises(error: LogError) -> Step:
    async def step() -> bytes | None:
        raise error

    return step


def returns(value: bytes | None, *, after: float = 0.0) -> Step:
    async def step() -> bytes | None:
        await asyncio.sleep(after)
        return value

    return step


STORED = returns(None)
NOTHING = returns(None)
UNCLEAR = raises(Ambiguous("no acknowledgement"))
TAKEN = raises(PositionTaken("another append is in progress"))
AWAY = raises(Unreachable("no leader"))


async def stored(log: ScriptedLog, marked: list[LogError] | None = None) -> bool:
    async def verified() -> None:
        pass

    appender = ExactlyOnceAppender(
        cast("Log", log),
        SETTINGS,
        observer=WriterObserver(),
        verify_identity=verified,
        mark_unreachable=(marked if marked is not None else []).append,
    )
    async with asyncio.timeout(60):
        return await appender.store(OWN, POSITION)


async def test_a_record_that_is_found_is_not_sent_again() -> None:
    log = ScriptedLog(append=[UNCLEAR], get=[returns(OWN)])
    assert await stored(log)
    assert log.sent == 1


async def test_the_record_of_another_writer_is_not_the_own_one() -> None:
    assert not await stored(ScriptedLog(append=[UNCLEAR], get=[returns(OTHER)]))


async def test_a_record_that_is_not_there_is_sent_again() -> None:
    log = ScriptedLog(append=[UNCLEAR, STORED], get=[NOTHING])
    assert await stored(log)
    assert log.sent == 2


async def test_a_slow_log_that_can_be_read_is_not_marked_unreachable() -> None:
    """The first message is stored while the second one is refused because of it."""
    marked: list[LogError] = []
    log = ScriptedLog(append=[UNCLEAR, TAKEN], get=[NOTHING, NOTHING, NOTHING, returns(OWN)])
    assert await stored(log, marked)
    assert marked == []


async def test_a_log_that_cannot_be_read_is_marked_unreachable() -> None:
    marked: list[LogError] = []
    with pytest.raises(Unreachable, match="unclear whether a record was stored"):
        await stored(ScriptedLog(append=[UNCLEAR], get=[AWAY]), marked)
    assert {type(error) for error in marked} == {Unreachable}


async def test_a_log_that_is_read_and_stores_nothing_is_unwritable() -> None:
    with pytest.raises(Unwritable, match="stores nothing"):
        await stored(ScriptedLog(append=[UNCLEAR], get=[NOTHING]))


def test_a_leader_elected_just_before_the_deadline_still_gets_the_record() -> None:
    """A lost server's report takes the rest of the time; the log itself can be written again.

    The time is virtual, because a busy machine takes longer than the 50 ms that are left.
    """
    late = returns(None, after=SETTINGS.command_seconds_max - 0.05)
    log = ScriptedLog(append=[UNCLEAR, returns(None, after=0.03)], get=[late])
    log.trouble_seconds = 0.1
    loop = VirtualLoop(random.Random(1), steps_max=STEPS_MAX)  # type: ignore[abstract]
    assert loop.run(stored(log))
    assert log.sent == 2
