"""Handshake: whether somebody still answers for the cards that a node announces.

HAMi's scheduler writes `Requesting_<time>` on the Node and the device plugin of old releases
answered with `Reported …`. Today's plugin does not answer, so the question stays and gets old; what
tells that the plugin lives is that the kubelet has cards to allocate.
"""

from datetime import UTC, datetime, timedelta
from typing import Final

ANSWERED_WITHIN: Final = timedelta(seconds=60)
"""How long a question may stand without an answer."""

_QUESTION: Final = "Requesting"
_TIME: Final = "%Y-%m-%d %H:%M:%S"


def handshake_alive(value: str | None, now: datetime, allocatable: int) -> bool:
    """Return whether the cards of a node count, by its handshake and what its kubelet allocates.

    `now` has a time zone; `allocatable` counts the vendor's cards in the Node's status. Only an old
    question on a node without anything to allocate tells that nobody is there. The question's time
    has no zone and is read as UTC, in which containers live; one from the future says nothing.
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
