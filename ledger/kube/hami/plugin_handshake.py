"""Plugin handshake: whether the device plugin of a node is alive, so that the node's cards count.

HAMi's scheduler writes `Requesting_<time>` on the Node, and the device plugin of old releases
answered with `Reported …`. The current plugin does not answer, so the request stays and grows old.
Allocatable cards of the kubelet then show that the plugin is alive.
"""

from datetime import UTC, datetime, timedelta
from typing import Final

ANSWERED_WITHIN: Final = timedelta(seconds=60)
"""Maximum age of an unanswered request."""

_QUESTION: Final = "Requesting"
_TIME: Final = "%Y-%m-%d %H:%M:%S"


def handshake_alive(value: str | None, now: datetime, allocatable: int) -> bool:
    """Return whether the cards of a node count, by its handshake and its allocatable cards.

    `now` has a time zone; `allocatable` counts the vendor's cards in the Node's status. False only
    for an old request on a node without allocatable cards. The request's time has no zone and is
    read as UTC, the time zone of containers. A time in the future counts as a recent request.
    """
    if allocatable > 0 or value is None or _QUESTION not in value:
        return True
    asked = _time_of(value)
    return asked is None or now - asked < ANSWERED_WITHIN


def _time_of(value: str) -> datetime | None:
    try:
        return datetime.strptime(value.partition("_")[2], _TIME).replace(tzinfo=UTC)
    except ValueError:
        return None
