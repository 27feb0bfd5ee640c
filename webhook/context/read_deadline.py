"""Read deadline: how long a review waits for the API server before it is decided without an answer.

A review may read an owner, a namespace or the rights of a user. The remaining time of the review is
left to the ledger.
"""

import asyncio
from typing import Final

REVIEW_READ_SECONDS: Final = 2.0
"""How long a review waits for one read from the API server."""


def read_deadline(until: float) -> float:
    """Return the loop time by which a read ends for a review that ends at `until`."""
    return min(until, asyncio.get_running_loop().time() + REVIEW_READ_SECONDS)
