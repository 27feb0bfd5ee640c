"""Node lock: which pod a node of HAMi's is handing cards out to.

The kubelet does not tell HAMi's device plugin for which pod it asks, so the plugin takes the one
that the annotation `hami.io/mutex.lock` of its Node names: `<RFC 3339 time>,<namespace>,<pod>`. The
plugin removes it once the pod has all its cards. Old releases wrote the time alone.
"""

from datetime import datetime, timedelta
from typing import Final

import msgspec

EXPIRES_AFTER: Final = timedelta(minutes=5)
"""How long a lock holds at most, as in HAMi."""

_FIELDS: Final = 3
_TEXT_MAX: Final = 1_024


class NodeLock(msgspec.Struct, frozen=True, gc=False):
    """Since when a node is locked, and for which pod; both names are empty in old locks."""

    time: datetime
    namespace: str = ""
    pod: str = ""

    def is_of(self, namespace: str, pod: str) -> bool:
        """Return whether the lock is this pod's."""
        return (self.namespace, self.pod) == (namespace, pod)

    def expired(self, now: datetime) -> bool:
        """Return whether the lock is too old to hold, or of a time that is too far ahead.

        `now` has a time zone. HAMi would wait for a clock that was wrong.
        """
        return abs(now - self.time) > EXPIRES_AFTER


def write(namespace: str, pod: str, now: datetime) -> str:
    """Return the annotation that locks a node for a pod; `now` has a time zone."""
    return f"{now.isoformat(timespec='seconds')},{namespace},{pod}"


def read(text: str | None) -> NodeLock | None:
    """Return the lock that an annotation says, None when there is none or nobody can read it.

    Nobody gives up a lock that names neither a time nor a pod, so it holds nobody up.
    """
    if not text or len(text) > _TEXT_MAX:
        return None
    time, *names = text.split(",")
    if names and len(names) != _FIELDS - 1:
        return None
    try:
        since = datetime.fromisoformat(time)
    except ValueError:
        return None
    return NodeLock(since, *names) if since.tzinfo is not None else None
