"""Delivery: order, bounds and persistence."""

import asyncio
import contextlib

import pytest

from ledger.core.model.commands import CloseAccount, End, Observe, RegisterCards, RemoveNode
from ledger.core.model.denials import Denial, Reason
from ledger.log import command_delivery
from ledger.log.command_delivery import CommandQueue
from ledger.log.ledger_port import Accepted


class Desk:
    """A ledger that gives set refusals and keeps the accepted commands."""

    def __init__(self) -> None:
        self.refusals: list[Reason] = []
        self.accepted: list = []
        self.at_once = 0
        self.most_at_once = 0
        self.gate: asyncio.Event | None = None

    async def submit(self, command, *, dry_run: bool = False):
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        await (self.gate.wait() if self.gate is not None else asyncio.sleep(0))
        self.at_once -= 1
        if self.refusals:
            return Denial(self.refusals.pop(0), "not now", transient=True)
        self.accepted.append(command)
        return Accepted(1, "d", True)


@pytest.fixture
def desk() -> Desk:
    return Desk()


@pytest.fixture
async def courier(desk, monkeypatch):
    monkeypatch.setattr(command_delivery, "RETRY_SECONDS", 0.001)
    queue = CommandQueue(desk)
    task = asyncio.create_task(queue.run())
    yield queue
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task


def seen(number: int, key: str = "pods/p") -> Observe:
    return Observe("c/red", key, "u", number, {})


async def test_commands_of_a_key_arrive_in_order_despite_refusals(courier, desk):
    desk.refusals = [Reason.OVERLOADED, Reason.LEDGER_UNAVAILABLE, Reason.LEDGER_STOPPED] * 2
    commands = [seen(number) for number in range(20)]
    for command in commands:
        await courier.send(command)
    await courier.flush()
    assert desk.accepted == commands


@pytest.mark.parametrize("reason", [Reason.ATTEMPT_DIFFERS, Reason.INTERNAL_ERROR])
async def test_a_command_that_the_ledger_cannot_accept_is_not_repeated(courier, desk, reason):
    desk.refusals = [reason]
    await courier.send(seen(1))
    await courier.send(seen(2))
    await courier.flush()
    assert desk.accepted == [seen(2)]


async def test_a_submission_that_hangs_meets_its_deadline_and_is_repeated(
    courier, desk, monkeypatch
):
    monkeypatch.setattr(command_delivery, "SUBMIT_SECONDS", 0.05)
    desk.gate = asyncio.Event()
    await courier.send(seen(1))
    async with asyncio.timeout(5):
        while desk.at_once < 2:  # noqa: ASYNC110 - the fake has no event for it
            await asyncio.sleep(0.01)
        desk.gate.set()
        await courier.flush()
    assert desk.accepted == [seen(1)]


async def test_concurrency_and_queues_are_bounded(courier, desk):
    desk.gate = asyncio.Event()
    bound = command_delivery.WORKERS * (command_delivery.WORKER_COMMANDS_MAX + 1)

    async def send_all() -> None:
        for number in range(2 * bound):
            await courier.send(seen(number, f"pods/{number}"))

    sending = asyncio.create_task(send_all())
    done, _ = await asyncio.wait([sending], timeout=0.5)
    assert not done, "whoever sends waits while lanes are full"
    assert desk.most_at_once <= command_delivery.WORKERS
    desk.gate.set()
    async with asyncio.timeout(10):
        await sending
        await courier.flush()
    assert len(desk.accepted) == 2 * bound


async def test_what_is_on_its_way_is_known_until_it_has_arrived(courier, desk):
    desk.gate = asyncio.Event()
    await courier.send(seen(1))
    await courier.send(End("c/red", "pods/p", "u", 2, "deleted"))
    await courier.send(CloseAccount("quota/c/red/q"))
    assert courier.is_pending("c/red", "pods/p")
    assert courier.is_pending("", "quota/c/red/q")
    assert not courier.is_pending("c/red", "pods/other")
    desk.gate.set()
    await courier.flush()
    assert not courier.is_pending("c/red", "pods/p")
    assert not courier.is_pending("", "quota/c/red/q")


async def test_a_command_that_its_sender_gave_up_is_not_waited_for(courier, desk):
    desk.gate = asyncio.Event()
    for number in range(command_delivery.WORKER_COMMANDS_MAX + 1):
        await courier.send(seen(number))
        await asyncio.sleep(0)
    given_up = asyncio.create_task(courier.send(seen(999)))
    await asyncio.sleep(0)
    given_up.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await given_up
    desk.gate.set()
    await courier.flush()
    assert not courier.is_pending("c/red", "pods/p")
    assert seen(999) not in desk.accepted


async def test_a_flush_does_not_wait_for_what_is_sent_after_it(courier, desk):
    await courier.send(seen(0))
    flushed = asyncio.create_task(courier.flush())
    number = 0
    async with asyncio.timeout(5):
        while not flushed.done():
            number += 1
            await courier.send(seen(number))  # one is on its way at every moment
            await asyncio.sleep(0)
    assert desk.accepted[0] == seen(0)
    assert courier.is_pending("c/red", "pods/p")


async def test_command_of_a_node_waits_for_earlier_ones_of_that_node_only(courier, desk):
    desk.refusals = [Reason.OVERLOADED] * 3
    told: list[RegisterCards | RemoveNode] = [
        RegisterCards("c/slow", "hami", ()),
        RemoveNode("c/slow"),
        RemoveNode("c/quick"),
    ]
    for command in told:
        await courier.send(command)
        assert courier.is_pending("", command.node)
    await courier.flush()
    assert [accepted for accepted in desk.accepted if accepted.node == "c/slow"] == told[:2]
    assert told[2] in desk.accepted
    assert not courier.is_pending("", "c/slow")
