"""The follower: how much of a batch it projects at a stretch."""

import asyncio
import itertools
import random
from collections.abc import Sequence
from typing import Any

import pytest
from simulation.engine.loop import VirtualLoop

from gpuledger.server.follower import follower_process
from gpuledger.server.follower.follower_process import BEHIND_ENTRIES, PAUSE_SECONDS, PIECE_BYTES
from ledger.log.log_port import LogEntry


class Pieces:
    """A projector that keeps the loop time, the entries and the known end of each call."""

    def __init__(self) -> None:
        self.calls: list[tuple[float, list[LogEntry], int]] = []

    async def project(self, entries: Sequence[LogEntry], *, known: int) -> int:
        self.calls.append((asyncio.get_running_loop().time(), list(entries), known))
        return 2 * len(entries)


def _projected(sizes: list[int], last: int = 0) -> tuple[list[LogEntry], Pieces]:
    """Project a batch of records of these bytes; return it, and the calls of the projector."""
    batch = [LogEntry(10 + index, bytes(size)) for index, size in enumerate(sizes)]
    projector: Any = Pieces()

    async def project() -> int:
        return await follower_process._project_in_pieces(projector, batch, last)

    loop = VirtualLoop(random.Random(1), steps_max=100_000)  # type: ignore[abstract]
    assert loop.run(project()) == 2 * len(batch)
    assert [entry for _, piece, _ in projector.calls for entry in piece] == batch
    return batch, projector


def test_a_small_batch_is_projected_in_pieces_with_pauses() -> None:
    _, projector = _projected([600] * 60)
    assert max(sum(len(e.payload) for e in piece) for _, piece, _ in projector.calls) <= (
        PIECE_BYTES + 600
    )
    times = [time for time, _, _ in projector.calls]
    assert len(times) >= 8
    assert all(b - a >= PAUSE_SECONDS for a, b in itertools.pairwise(times))


@pytest.mark.parametrize("last", [0, 69, 500])
def test_pieces_before_the_last_are_stored_together_with_it(last: int) -> None:
    batch, projector = _projected([600] * 60, last)
    assert {known for _, _, known in projector.calls} == {max(last, batch[-1].position)}


def test_pauses_end_within_the_wait_for_further_events() -> None:
    _, projector = _projected([20_000] * (BEHIND_ENTRIES - 1))
    taken = projector.calls[-1][0] - projector.calls[0][0]
    assert taken <= follower_process.GATHER_SECONDS + PAUSE_SECONDS


def test_a_large_batch_is_projected_at_once_when_the_projection_is_behind() -> None:
    batch, projector = _projected([600] * BEHIND_ENTRIES, last=7)
    assert [(entries, known) for _, entries, known in projector.calls] == [(batch, 7)]
