"""Backoff doubles its pauses up to a bound, and begins again after a success."""

import pytest

from ledger.tasks.backoff import Backoff


def test_pauses_double_up_to_the_bound() -> None:
    backoff = Backoff(1.0, 5.0)
    assert [backoff.next_pause() for _ in range(4)] == [1.0, 2.0, 4.0, 5.0]


def test_a_success_begins_with_the_first_pause_again() -> None:
    backoff = Backoff(1.0, 5.0)
    backoff.next_pause()
    backoff.reset()
    assert backoff.next_pause() == 1.0


@pytest.mark.parametrize(("drawn", "pause"), [(0.0, 1.0), (0.5, 1.5), (1.0, 2.0)])
def test_jitter_takes_at_most_half_of_a_pause(drawn: float, pause: float) -> None:
    assert Backoff(2.0, 5.0, jitter=lambda: drawn).next_pause() == pause


async def test_the_shortest_wait_stays_short_and_lengthens_nothing() -> None:
    slept: list[float] = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)

    backoff = Backoff(1.0, 5.0, sleep=sleep)
    await backoff.wait()
    await backoff.wait_shortest()
    await backoff.wait()
    assert slept == [1.0, 1.0, 2.0]


async def test_a_pause_is_over_before_any_failure_and_not_right_after_one() -> None:
    backoff = Backoff(60.0, 60.0)
    assert backoff.is_over()
    backoff.failed()
    assert not backoff.is_over()
