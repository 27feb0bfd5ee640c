"""Wait estimate: how long a pod may wait, from the rate at which holders ended in the past."""

from typing import Final

import msgspec

from gpuledger.page.contents.duration_text import duration_text
from projections.queries.tenants.past_lifetimes import PastLifetimes

ENDED_MIN: Final = 5
"""Fewest ended holders from which a wait is estimated."""


class WaitEstimate(msgspec.Struct, frozen=True):
    """The estimate for the pod at each place of the queue, with its basis in words.

    `interval` is the mean time between the ends of holders in µs, 0 without an estimate.
    """

    interval: int
    basis: str

    def at(self, place: int) -> str:
        """Return the estimated wait of a place as text; a pod at place 0 is set aside."""
        if not place:
            return "set aside, because it does not fit on empty quotas"
        return f"about {duration_text(place * self.interval)}" if self.interval else "no estimate"


def wait_estimate(past: PastLifetimes, now: int) -> WaitEstimate:
    """Return the estimate at a time in µs of Unix time: one holder ends for each place."""
    if past.count < ENDED_MIN:
        return WaitEstimate(
            0,
            f"There is no estimate, because {past.count} holders of this namespace have ended; an"
            f" estimate needs {ENDED_MIN}.",
        )
    span = max(now - past.since, 1)
    interval = span // past.count
    return WaitEstimate(
        interval,
        f"{past.count} holders of this namespace ended in the last {duration_text(span)}, one in"
        f" {duration_text(interval)}. Half of them lasted at most {duration_text(past.median)}. The"
        " estimate is one such interval for each place of the queue. It does not include the size"
        " of the pod.",
    )
