"""Slices of the writer: how long a batch holds the event loop, and what is reported of it."""

import asyncio

import pytest
from support.harness.replicas import running

from ledger.core.model import commands
from ledger.log import records
from ledger.log.memory_log import MemoryStore
from ledger.log.writer import batch_decider
from ledger.log.writer.writer_observer import WriterObserver
from ledger.log.writer.writer_settings import WriterSettings

COMMANDS = 400
DECISION_SECONDS = 0.00004
RECORD_SECONDS = 0.0005
LOOKS_EVERY = 16
"""Commands between two looks at the stopwatch."""


class Blocks(WriterObserver):
    """Keeps each reported block, in seconds."""

    def __init__(self) -> None:
        self.seconds: list[float] = []

    def blocked(self, seconds: float) -> None:
        self.seconds.append(seconds)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Return a stopwatch that only decisions and records advance."""
    now = [0.0]
    decide, make = batch_decider.BatchDecider._verdict, records.next_record

    def verdict(*given: object) -> object:
        now[0] += DECISION_SECONDS
        return decide(*given)  # type: ignore[arg-type]

    def next_record(*given: object, **options: object) -> object:
        now[0] += RECORD_SECONDS
        return make(*given, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(batch_decider.BatchDecider, "_verdict", verdict)
    monkeypatch.setattr(records, "next_record", next_record)
    return now


async def test_a_large_batch_holds_the_loop_for_short_slices_only(clock: list[float]) -> None:
    blocks, settings = Blocks(), WriterSettings()
    async with running(
        MemoryStore(), settings=settings, observer=blocks, stopwatch=lambda: clock[0]
    ) as writer:
        blocks.seconds.clear()
        begun = clock[0]
        await asyncio.gather(
            *(
                writer.submit(commands.Reserve("c1/red", f"pods/p{n}", f"uid-{n}", {"gpu": 1}))
                for n in range(COMMANDS)
            )
        )
        longest = settings.slice_seconds_max + LOOKS_EVERY * DECISION_SECONDS + RECORD_SECONDS
        assert max(blocks.seconds) <= longest
        assert longest < 0.005
        assert sum(blocks.seconds) == pytest.approx(clock[0] - begun)
