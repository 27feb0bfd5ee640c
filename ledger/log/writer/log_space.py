"""Space: how full the log is, and what may still be appended.

The log never drops a record, so it can fill up. The last tenth of its maximum size is a reserve:
new reservations and placements are refused there, while commits, releases and limits are recorded.
So what is charged can still end when the log is nearly full.
"""

from typing import Final

from ledger.core.model.commands import AnyCommand, MakeRoom, Place, Reserve, Resize
from ledger.log.port import MESSAGE_BYTES, Extent

RESERVE_SHARE: Final = 10
"""One part in so many of the maximum size is the reserve."""

FULL_BYTES: Final = 64 * 1024
"""A log with less room than this, or than a hundredth of its maximum, counts as full."""


class LogSpace:
    """The room that a log has, by its extent as it was last told and what was stored since."""

    def __init__(self) -> None:
        self.extent = Extent(1, 0, 0, 0)

    def note(self, extent: Extent) -> None:
        """Take over what the log tells about itself."""
        self.extent = extent

    def grow(self, position: int, size: int) -> None:
        """Count a record of so many bytes that was stored at a position."""
        old = self.extent
        size += old.size + MESSAGE_BYTES
        self.extent = Extent(old.first, position, size, old.size_max)

    def shrink(self, size: int) -> bool:
        """Conclude that there is no room for a record of so many bytes; False without a maximum."""
        old = self.extent
        if old.size_max:
            taken = max(old.size, old.size_max - size - 2 * MESSAGE_BYTES + 1)
            self.extent = Extent(old.first, old.last, taken, old.size_max)
        return bool(old.size_max)

    @property
    def room(self) -> int | None:
        """How many bytes a record may have to be stored; None without a maximum."""
        extent = self.extent
        if not extent.size_max:
            return None
        return max(0, extent.size_max - extent.size - 2 * MESSAGE_BYTES)

    @property
    def is_full(self) -> bool:
        """Whether so little room is left that nothing can be relied on to fit."""
        room = self.room
        return room is not None and room < min(FULL_BYTES, self.extent.size_max // 100 + 1)

    def is_reserve(self, size: int) -> bool:
        """Return whether so many bytes more would reach into the reserve."""
        extent = self.extent
        free = extent.size_max - extent.size - size
        return bool(extent.size_max) and free < extent.size_max // RESERVE_SHARE

    def shown(self) -> str:
        """Return how full the log is, in words."""
        extent = self.extent
        return f"{extent.size} of its maximum of {extent.size_max} bytes"

    def fullness(self) -> str:
        """Return that the log is full, in a sentence with the remedy."""
        return f"the log has {self.shown()} and no room for more: raise log_bytes_max"


def asks_for_more(command: AnyCommand) -> bool:
    """Return whether a command promises something new; the others record what is so already."""
    if isinstance(command, Place):
        return not command.seen
    return isinstance(command, Reserve | Resize | MakeRoom)
