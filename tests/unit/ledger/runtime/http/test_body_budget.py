"""Bodies of requests share a bound of bytes, and those that never arrive give way."""

import asyncio
import gzip
from typing import Any

import pytest

from ledger.runtime.http import json_endpoint
from ledger.runtime.http.json_endpoint import BodyBudget, RequestRefused

DEADLINE_SECONDS = 10.0
KIB = 1024


class Sender:
    """Sends a body in the parts that it is given, and then nothing."""

    def __init__(self, *parts: bytes, more: bool = False) -> None:
        self._parts, self._more = list(parts), more
        self.sent = asyncio.Event()

    async def __call__(self) -> dict[str, Any]:
        if not self._parts:
            self.sent.set()
            await asyncio.Event().wait()
        part = self._parts.pop(0)
        return {
            "type": "http.request",
            "body": part,
            "more_body": bool(self._parts) or self._more,
        }


def until() -> float:
    return asyncio.get_running_loop().time() + DEADLINE_SECONDS


async def read(budget: BodyBudget, sender: Sender, answered: asyncio.Event | None = None) -> bytes:
    """Read a body and hold it until its request is answered."""
    with budget.holding() as held:
        body = await json_endpoint.read_body(sender, KIB * KIB, until(), held)
        if answered is not None:
            await answered.wait()
        return body


async def test_bodies_count_until_their_request_is_answered() -> None:
    budget, answered = BodyBudget(10 * KIB), asyncio.Event()
    task = asyncio.create_task(read(budget, Sender(b"a" * KIB, b"b" * KIB), answered))
    async with asyncio.timeout(DEADLINE_SECONDS):
        while budget.bytes < 2 * KIB:  # noqa: ASYNC110 (no event exists)
            await asyncio.sleep(0)
        answered.set()
        assert await task == b"a" * KIB + b"b" * KIB
    assert budget.bytes == 0


async def test_a_body_waits_until_others_are_answered() -> None:
    budget, answered = BodyBudget(10 * KIB), asyncio.Event()
    first = asyncio.create_task(read(budget, Sender(b"a" * 8 * KIB), answered))
    await asyncio.sleep(0)
    second = asyncio.create_task(read(budget, Sender(b"b" * 8 * KIB)))
    for _ in range(10):
        await asyncio.sleep(0)
        assert budget.bytes <= 10 * KIB
        assert not second.done()
    answered.set()
    assert await asyncio.wait_for(second, DEADLINE_SECONDS) == b"b" * 8 * KIB
    await first


async def test_a_body_that_finds_no_room_in_time_is_refused() -> None:
    budget, answered = BodyBudget(10 * KIB), asyncio.Event()
    first = asyncio.create_task(read(budget, Sender(b"a" * 8 * KIB), answered))
    await asyncio.sleep(0)
    soon = asyncio.get_running_loop().time() + 0.05
    with budget.holding() as held, pytest.raises(RequestRefused, match="other requests") as refused:
        await json_endpoint.read_body(Sender(b"b" * 8 * KIB), KIB * KIB, soon, held)
    assert refused.value.status == 503
    answered.set()
    await first


async def test_many_small_bodies_that_never_arrive_keep_no_larger_one_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(json_endpoint, "ARRIVAL_SECONDS", 0.05)
    budget = BodyBudget(100 * KIB)
    senders = [Sender(b"a" * KIB, more=True) for _ in range(100)]
    never = [asyncio.create_task(read(budget, sender)) for sender in senders]
    async with asyncio.timeout(DEADLINE_SECONDS):
        for sender in senders:
            await sender.sent.wait()
        assert budget.bytes == 100 * KIB
        assert await read(budget, Sender(b"b" * 40 * KIB, b"b" * 40 * KIB)) == b"b" * 80 * KIB
    gone = [task for task in never if task.done()]
    assert len(gone) >= 70
    assert {task.exception().status for task in gone} == {503}
    assert gone == never[: len(gone)], "the body that has been arriving for longest gives way"
    for task in never:
        task.cancel()
    await asyncio.gather(*never, return_exceptions=True)
    assert budget.bytes == 0


async def test_a_body_that_has_arrived_does_not_give_way(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_endpoint, "ARRIVAL_SECONDS", 0.0)
    budget, answered = BodyBudget(10 * KIB), asyncio.Event()
    first = asyncio.create_task(read(budget, Sender(b"a" * KIB, b"a" * 7 * KIB), answered))
    await asyncio.sleep(0.01)
    second = asyncio.create_task(read(budget, Sender(b"b" * 8 * KIB)))
    await asyncio.sleep(0.05)
    assert not first.done()
    answered.set()
    assert await asyncio.wait_for(first, DEADLINE_SECONDS) == b"a" * 8 * KIB
    assert await asyncio.wait_for(second, DEADLINE_SECONDS) == b"b" * 8 * KIB


async def test_a_compressed_body_counts_as_what_it_becomes() -> None:

    budget = BodyBudget(100 * KIB)
    scope = {"headers": [(b"content-encoding", b"gzip")]}
    with budget.holding() as held:
        packed = await json_endpoint.read_body(
            Sender(gzip.compress(b"a" * 50 * KIB)), KIB, until(), held
        )
        inflated = await json_endpoint.inflated_body(scope, packed, 60 * KIB, until(), held)
        assert budget.bytes == len(packed) + len(inflated) == len(packed) + 50 * KIB
    assert budget.bytes == 0
