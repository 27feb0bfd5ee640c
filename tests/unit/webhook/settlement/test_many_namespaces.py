"""Loops over all namespaces let reviews be answered in between, also where nothing is charged.

The first use of a namespace after a start reads it from the snapshot, which takes some 10 µs.
"""

import asyncio
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any

import pytest

from ledger.tasks.periodic import STEPS
from webhook.settlement.objects_missing_from_list import release_missing
from webhook.settlement.open_attempt_ages import start_open_attempt_ages
from webhook.settlement.workloads.workload_informers import WorkloadInformers


class Namespaces:
    """A session whose namespaces have no keys; `in_one_turn` is the most that were read at once."""

    def __init__(self) -> None:
        self.turn, self.in_one_turn, self._reads = 0, 0, (0, 0)

    def namespaces(self) -> list[str]:
        return [f"c1/n{number}" for number in range(10 * STEPS)]

    def keys(self, namespace: str) -> list[str]:
        turn, reads = self._reads
        self._reads = (self.turn, reads + 1 if turn == self.turn else 1)
        self.in_one_turn = max(self.in_one_turn, self._reads[1])
        return []


async def charged(session: Any) -> None:
    informers: Any = SimpleNamespace(_session=session)
    assert await WorkloadInformers._charged(informers) == set()


async def ages(session: Any) -> None:
    nothing: Any = None
    await start_open_attempt_ages(session, nothing)


async def missing(session: Any) -> None:
    await release_missing(session, "", {}, 1)


@pytest.mark.parametrize("loop", [charged, ages, missing])
async def test_a_loop_over_namespaces_without_keys_yields(
    loop: Callable[[Any], Awaitable[None]],
) -> None:
    session = Namespaces()

    async def turns() -> None:
        while True:
            session.turn += 1
            await asyncio.sleep(0)

    counting = asyncio.create_task(turns())
    await loop(session)
    counting.cancel()
    assert 0 < session.in_one_turn <= STEPS
