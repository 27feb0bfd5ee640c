"""The loop that skips time keeps the order of timers, and waits for threads."""

import asyncio
import time

from support.harness.skipped_time import SkippingLoop

HOUR = 3_600.0


def test_timers_fire_in_order_and_the_clock_shows_the_skipped_time() -> None:
    fired: list[str] = []

    async def after(seconds: float, name: str) -> None:
        await asyncio.sleep(seconds)
        fired.append(name)

    async def main() -> float:
        loop = asyncio.get_running_loop()
        begun = loop.time()
        await asyncio.gather(after(2 * HOUR, "second"), after(HOUR, "first"))
        return loop.time() - begun

    with asyncio.Runner(loop_factory=SkippingLoop) as runner:
        assert runner.run(main()) >= 2 * HOUR
    assert fired == ["first", "second"]


def test_no_time_is_skipped_while_a_thread_runs() -> None:
    async def main() -> str:
        async with asyncio.timeout(HOUR):
            return await asyncio.to_thread(slow)

    def slow() -> str:
        time.sleep(0.05)
        return "ended"

    with asyncio.Runner(loop_factory=SkippingLoop) as runner:
        assert runner.run(main()) == "ended"
