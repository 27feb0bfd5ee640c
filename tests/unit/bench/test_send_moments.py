"""Fixed moments of a load generator, on the event loop that it runs on."""

import itertools
import time
from collections.abc import Callable

import pytest
import uvloop

from tests.bench.load.send_moments import Outcome, SendMoments

PER_SECOND = 2_000.0


def _moments(send: Callable[[int], Outcome]) -> list[float]:
    """Return the moments at which `send` was called; it gets the number of calls before."""
    called: list[float] = []

    def at(moment: float) -> Outcome:
        called.append(moment)
        return send(len(called) - 1)

    uvloop.run(SendMoments(PER_SECOND, at).run())
    return called


def test_moments_are_as_far_apart_as_the_rate_when_a_call_is_slow() -> None:
    def send(number: int) -> Outcome:
        if number == 10:
            time.sleep(0.02)
        return Outcome.LAST if number == 199 else Outcome.SENT

    moments = _moments(send)
    gaps = [later - moment for moment, later in itertools.pairwise(moments)]
    assert gaps == pytest.approx([1 / PER_SECOND] * 199, rel=0.01)


def test_a_moment_stays_due_when_it_cannot_be_used_yet() -> None:
    outcomes = [Outcome.SENT, Outcome.LATER, Outcome.LATER, Outcome.SENT, Outcome.LAST]
    moments = _moments(lambda number: outcomes[number])
    assert moments[1] == moments[2] == moments[3] < moments[4]


def test_the_wait_for_a_moment_does_not_compute() -> None:
    begun, computed = time.perf_counter(), time.process_time()
    _moments(lambda number: Outcome.LAST if number == 1_000 else Outcome.SENT)
    share = (time.process_time() - computed) / (time.perf_counter() - begun)
    assert share < 0.3


def test_a_defect_of_the_sender_is_raised() -> None:
    def send(number: int) -> Outcome:
        if number == 3:
            raise ArithmeticError("a defect")
        return Outcome.SENT

    with pytest.raises(ArithmeticError, match="a defect"):
        _moments(send)
