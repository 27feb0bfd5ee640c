"""Engine of the simulation: virtual time, seeded order, and processes that end at a kill."""

import asyncio
import random

import pytest

from simulation.engine.loop import Deadlock, Runaway, VirtualLoop
from simulation.engine.processes import Process, outside

STEPS_MAX = 10_000


def loop(seed: int = 1) -> VirtualLoop:
    return VirtualLoop(random.Random(seed), steps_max=STEPS_MAX)  # type: ignore[abstract]


def order_of(seed: int) -> list[int]:
    seen: list[int] = []

    async def say(number: int) -> None:
        seen.append(number)

    async def main() -> None:
        await asyncio.gather(*(say(number) for number in range(6)))

    loop(seed).run(main())
    return seen


def test_time_passes_without_waiting() -> None:
    async def main() -> float:
        await asyncio.sleep(86_400)
        return asyncio.get_running_loop().time()

    assert loop().run(main()) == 86_400


def test_a_deadline_passes_in_virtual_time() -> None:
    async def main() -> str:
        try:
            async with asyncio.timeout(5):
                await asyncio.sleep(6)
        except TimeoutError:
            return "late"
        return "in time"

    assert loop().run(main()) == "late"


def test_the_seed_decides_the_order() -> None:
    assert order_of(3) == order_of(3)
    assert len({tuple(order_of(seed)) for seed in range(10)}) > 5


def test_waiting_for_nothing_is_a_deadlock() -> None:
    async def main() -> None:
        await asyncio.get_running_loop().create_future()

    with pytest.raises(Deadlock):
        loop().run(main())


def test_going_round_in_circles_is_found() -> None:
    async def main() -> None:
        while True:  # noqa: ASYNC110 - this is the defect
            await asyncio.sleep(0)

    with pytest.raises(Runaway):
        loop().run(main())


def test_a_killed_process_does_not_even_clean_up() -> None:
    did: list[str] = []

    async def work() -> None:
        try:
            await asyncio.sleep(1)
            did.append("finished")
        finally:
            did.append("cleaned up")

    async def main() -> list[str]:
        process = Process("p")
        process.start(work())
        await asyncio.sleep(0.5)
        process.kill()
        await asyncio.sleep(5)
        return list(did)

    assert loop().run(main()) == []


def test_what_a_process_starts_dies_with_it() -> None:
    did: list[str] = []

    async def child() -> None:
        await asyncio.sleep(1)
        did.append("child")

    async def parent() -> None:
        asyncio.create_task(child())  # noqa: RUF006 - the loop keeps it
        asyncio.get_running_loop().call_later(1, did.append, "timer")
        await asyncio.sleep(2)

    async def main() -> None:
        process = Process("p")
        process.start(parent())
        await asyncio.sleep(0.5)
        process.kill()
        await asyncio.sleep(5)

    loop().run(main())
    assert did == []


def test_the_world_outlives_a_process_that_it_started() -> None:
    async def nothing() -> None:
        return

    async def main() -> float:
        process = Process("p")
        process.start(nothing())
        process.kill()
        await asyncio.sleep(1)
        return asyncio.get_running_loop().time()

    assert loop().run(main()) == 1


def test_a_request_under_way_outlives_its_sender() -> None:
    did: list[str] = []

    async def arrive() -> None:
        await asyncio.sleep(1)
        did.append("arrived")

    async def send() -> None:
        await outside(arrive())

    async def main() -> None:
        process = Process("p")
        process.start(send())
        await asyncio.sleep(0.5)
        process.kill()
        await asyncio.sleep(5)

    loop().run(main())
    assert did == ["arrived"]


def test_unhandled_exceptions_are_noted() -> None:
    def fail() -> None:
        raise ValueError("nobody catches this")

    async def main() -> None:
        asyncio.get_running_loop().call_soon(fail)
        await asyncio.sleep(1)

    virtual = loop()
    virtual.run(main())
    assert "nobody catches this" in virtual.problems[0]


def test_generators_and_tasks_are_ended_with_the_run() -> None:
    ended: list[str] = []

    async def generate() -> object:
        try:
            yield 1
            await asyncio.sleep(100)
            yield 2
        finally:
            ended.append("generator")

    async def consume() -> None:
        async for _ in generate():  # type: ignore[attr-defined]
            pass

    async def main() -> None:
        asyncio.create_task(consume())  # noqa: RUF006 - the loop keeps it
        await asyncio.sleep(1)

    loop().run(main())
    assert ended == ["generator"]
