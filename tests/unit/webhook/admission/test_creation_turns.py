"""Creations beyond an owner's bound wait for earlier ones, and only while these settle."""

import asyncio
from collections import Counter
from types import SimpleNamespace
from typing import Any

import pytest

from ledger.core.model.commands import CREATE, Reserve
from ledger.core.model.denials import Denial, Reason
from ledger.log.ledger_port import Accepted, answered
from webhook.admission import creation_turns
from webhook.admission.creation_turns import CreationTurns

BOUND = 4
NAMESPACE = "here/red"


class BoundedLedger:
    """A ledger that decides by the bound alone, and the state that it has."""

    def __init__(self) -> None:
        self.owners: Counter[str] = Counter()
        self.state = SimpleNamespace(namespaces={NAMESPACE: SimpleNamespace(owners=self.owners)})
        self.asked: list[str] = []

    def submit(self, command: Any, *, dry_run: bool = False) -> asyncio.Future[Accepted | Denial]:
        self.asked.append(command.key)
        if self.owners[command.owner] >= BOUND:
            return answered(Denial(Reason.TOO_MANY_UNSETTLED, "full", transient=True))
        self.owners[command.owner] += 1
        return answered(Accepted(1, "1.1", changed=True))

    def settle(self, owner: str, count: int = 1) -> None:
        self.owners[owner] -= count


@pytest.fixture
def ledger() -> BoundedLedger:
    return BoundedLedger()


@pytest.fixture
def turns(ledger: BoundedLedger, monkeypatch: pytest.MonkeyPatch) -> CreationTurns:
    monkeypatch.setattr(creation_turns, "LOOK_SECONDS", 0.002)
    monkeypatch.setattr(creation_turns, "STALLED_SECONDS", 0.2)
    return CreationTurns(ledger, ledger, owner_holds_max=BOUND)  # type: ignore[arg-type]


def creation(number: int, owner: str = "eve", base: int = CREATE) -> Reserve:
    return Reserve(
        NAMESPACE, f"pods/{number}", f"u{number}", {"gpu": 1}, base=base, owner=owner, actor=owner
    )


def start(turns: CreationTurns, *creations: Reserve, seconds: float = 60.0) -> list[asyncio.Task]:
    until = asyncio.get_running_loop().time() + seconds
    return [asyncio.create_task(turns.submit(reserve, until)) for reserve in creations]


async def test_burst_of_an_owner_is_admitted_in_order_while_it_settles(turns, ledger) -> None:
    burst = start(turns, *map(creation, range(60)))
    while not all(task.done() for task in burst):
        await asyncio.sleep(0.003)
        assert ledger.owners["eve"] <= BOUND
        ledger.settle("eve", min(2, ledger.owners["eve"]))
    assert all(isinstance(task.result(), Accepted) for task in burst)
    assert ledger.asked == [f"pods/{number}" for number in range(60)]


async def test_new_creation_does_not_overtake_a_waiting_one(turns, ledger) -> None:
    await asyncio.gather(*start(turns, *map(creation, range(BOUND))))
    [first] = start(turns, creation(10))
    await asyncio.sleep(0)
    ledger.settle("eve")
    [second] = start(turns, creation(11))
    assert isinstance(await first, Accepted)
    assert ledger.asked[-1] == "pods/10"
    ledger.settle("eve")
    assert isinstance(await second, Accepted)


async def test_owner_without_progress_is_refused_and_pauses_waiting(turns, ledger) -> None:
    loop = asyncio.get_running_loop()
    await asyncio.gather(*start(turns, *map(creation, range(BOUND))))
    began = loop.time()
    refused = await asyncio.gather(*start(turns, *map(creation, range(10, 30))))
    assert {answer.reason for answer in refused} == {Reason.TOO_MANY_UNSETTLED}
    assert 0.1 < loop.time() - began < 2.0
    began = loop.time()
    [again] = await asyncio.gather(*start(turns, creation(31)))
    assert isinstance(again, Denial)
    assert loop.time() - began < 0.1, "it does not wait during the pause"
    [other] = await asyncio.gather(*start(turns, creation(32, "bob")))
    assert isinstance(other, Accepted)


async def test_wait_leaves_half_of_the_reviews_time(turns, ledger, monkeypatch) -> None:
    monkeypatch.setattr(creation_turns, "STALLED_SECONDS", 60.0)
    await asyncio.gather(*start(turns, *map(creation, range(BOUND))))
    began = asyncio.get_running_loop().time()
    [answer] = await asyncio.gather(*start(turns, creation(9), seconds=0.2))
    assert isinstance(answer, Denial)
    assert asyncio.get_running_loop().time() - began < 0.18


async def test_waiting_creations_are_bounded(turns, ledger, monkeypatch) -> None:
    monkeypatch.setattr(creation_turns, "WAITING_OF_OWNER_MAX", 3)
    monkeypatch.setattr(creation_turns, "WAITING_MAX", 5)
    names = ("eve", "bob")
    everyone = [creation(number, name) for name in names for number in range(BOUND)]
    await asyncio.gather(*start(turns, *everyone))
    more = start(turns, *(creation(number, name) for name in names for number in range(10, 15)))
    await asyncio.sleep(0.05)
    assert sum(not task.done() for task in more) == 5
    await asyncio.gather(*more)


async def test_cancelled_creations_keep_no_turn(turns, ledger) -> None:
    await asyncio.gather(*start(turns, *map(creation, range(BOUND))))
    waiting = start(turns, *map(creation, range(10, 16)))
    await asyncio.sleep(0.01)
    for task in waiting[:-1]:
        task.cancel()
    ledger.settle("eve")
    assert isinstance(await waiting[-1], Accepted)
    await asyncio.gather(*waiting, return_exceptions=True)
    ledger.settle("eve", BOUND)
    assert not turns._lines


async def test_creation_that_is_cancelled_with_its_turn_gives_it_back(turns, ledger) -> None:
    await asyncio.gather(*start(turns, *map(creation, range(BOUND))))
    [first] = start(turns, creation(10))
    await asyncio.sleep(0.01)
    ledger.settle("eve")
    turns._look()
    first.cancel()
    await asyncio.gather(first, return_exceptions=True)
    assert not turns._lines
    [second] = await asyncio.gather(*start(turns, creation(11)))
    assert isinstance(second, Accepted)


async def test_updates_and_unbounded_creations_never_wait(turns, ledger) -> None:
    await asyncio.gather(*start(turns, *map(creation, range(BOUND))))
    [update] = await asyncio.gather(*start(turns, creation(0, base=7)))
    unbounded = CreationTurns(ledger, ledger, owner_holds_max=0)
    [free] = await asyncio.gather(*start(unbounded, creation(1)))
    assert isinstance(update, Denial)
    assert isinstance(free, Denial), "this ledger alone decides"
    assert not turns._lines
