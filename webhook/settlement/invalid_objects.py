"""Invalid objects: existing ones whose request is invalid are charged nothing, and logged once."""

from typing import Final

import structlog

from webhook.settlement.observation_commands import ObservedObject

_log: Final = structlog.get_logger("webhook")


class InvalidObjects:
    """The existing objects with an invalid request, by uid."""

    def __init__(self) -> None:
        self._keys: dict[str, str] = {}

    def __len__(self) -> int:
        """Return the number of invalid objects."""
        return len(self._keys)

    def note(self, seen: ObservedObject) -> None:
        """Remember an invalid object; forget it once it is valid or has ended."""
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
        """Forget the objects with this prefix of keys, because they are listed again."""
        self._keys = {uid: key for uid, key in self._keys.items() if not key.startswith(prefix)}
