"""Objects whose request cannot be understood: nothing is charged for them; that is said once."""

from typing import Final

import structlog

from webhook.settlement.observation import ObservedObject

_log: Final = structlog.get_logger("webhook")


class InvalidObjects:
    """The objects that exist and make no sense, by uid; as many as there are of them."""

    def __init__(self) -> None:
        self._keys: dict[str, str] = {}

    def __len__(self) -> int:
        """Return how many there are."""
        return len(self._keys)

    def note(self, seen: ObservedObject) -> None:
        """Remember an object that makes no sense, forget one that does or is over."""
        if not seen.problem or seen.cause:
            self._keys.pop(seen.uid, None)
        elif seen.uid not in self._keys:
            self._keys[seen.uid] = seen.key
            _log.warning(
                "request_not_understood",
                namespace=seen.namespace,
                key=seen.key,
                reason=seen.problem,
            )

    def clear(self, prefix: str) -> None:
        """Forget those whose keys begin so: they are about to be told again."""
        self._keys = {uid: key for uid, key in self._keys.items() if not key.startswith(prefix)}
