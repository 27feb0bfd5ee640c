"""Node lock annotation: the pod for which a HAMi node is allocating cards.

The kubelet does not send the pod's name to HAMi's device plugin. So the plugin reads the pod from
the Node's annotation `hami.io/mutex.lock`: `<RFC 3339 time>,<namespace>,<pod>`. The plugin removes
the annotation when the pod has all its cards. Old releases wrote the time alone.
"""

from datetime import datetime, timedelta
from typing import Final

import msgspec

EXPIRES_AFTER: Final = timedelta(minutes=5)
"""Maximum duration of a lock, as in HAMi."""

_FIELDS: Final = 3
_TEXT_MAX: Final = 1_024


class NodeLock(msgspec.Struct, frozen=True, gc=False):
    """The time of a lock and its pod; both names are empty in locks of old releases."""

    time: datetime
    namespace: str = ""
    pod: str = ""

    def is_of(self, namespace: str, pod: str) -> bool:
        """Return whether the lock names this pod."""
        return (self.namespace, self.pod) == (namespace, pod)

    def expired(self, now: datetime) -> bool:
        """Return whether the lock is too old, or too far in the future because of a wrong clock.

        `now` has a time zone. HAMi waits for a lock in the future.
        """
        return abs(now - self.time) > EXPIRES_AFTER


def write(namespace: str, pod: str, now: datetime) -> str:
    """Return the annotation that locks a node for a pod; `now` has a time zone."""
    return f"{now.isoformat(timespec='seconds')},{namespace},{pod}"


def read(text: str | None) -> NodeLock | None:
    """Return the lock in an annotation, None if it is absent or invalid.

    An invalid lock does not block a pod, because no component would ever remove it.
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
