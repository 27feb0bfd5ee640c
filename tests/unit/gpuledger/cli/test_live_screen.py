"""The live screen: errors are shown until the next try, and Ctrl-C ends a question that hangs."""

import asyncio
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpuledger.cli.exit_codes import CommandError, Exit
from gpuledger.cli.tables.live_screen import live
from gpuledger.cli.tables.top_screen import TopState, state_of

STATE = state_of(1, 1, [], [])


@pytest.fixture(autouse=True)
def no_keyboard(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with Path(os.devnull).open() as nothing:
        monkeypatch.setattr("sys.stdin", nothing)
        yield


def press_ctrl_c() -> None:
    os.kill(os.getpid(), signal.SIGINT)


async def test_ctrl_c_ends_a_question_that_hangs() -> None:
    asked = 0

    async def ask() -> TopState:
        nonlocal asked
        asked += 1
        if asked == 2:
            asyncio.get_running_loop().call_soon(press_ctrl_c)
            await asyncio.sleep(60)
        return STATE

    async with asyncio.timeout(2):
        await live(ask, 0.01)
    assert asked == 2


async def test_an_error_is_followed_by_another_try() -> None:
    asked = 0

    async def ask() -> TopState:
        nonlocal asked
        asked += 1
        if asked == 2:
            raise CommandError(Exit.NOT_READY, "it is too busy")
        if asked == 3:
            press_ctrl_c()
        return STATE

    async with asyncio.timeout(2):
        await live(ask, 0.01)
    assert asked == 3


async def test_an_error_of_the_first_try_ends_it() -> None:
    async def ask() -> TopState:
        raise CommandError(Exit.UNREACHABLE, "away")

    with pytest.raises(CommandError, match="away"):
        await live(ask, 0.01)


async def test_a_deadline_of_another_part_is_not_taken_for_the_end() -> None:
    asked = 0

    async def ask() -> TopState:
        nonlocal asked
        asked += 1
        if asked == 2:
            raise TimeoutError
        return STATE

    with pytest.raises(TimeoutError):
        await live(ask, 0.01)
