"""A bounded queue that is fair between namespaces: `take` serves the namespaces in turn.

The commands of a busy namespace wait behind each other, and not in front of other namespaces.
"""

from collections import deque
from typing import Generic, TypeVar

T = TypeVar("T")


class FairQueue(Generic[T]):
    """First in, first out within a lane; round robin between lanes. `size` counts the items."""

    def __init__(self, *, total_max: int, lane_max: int) -> None:
        self._lanes: dict[str, deque[T]] = {}
        self._turns: deque[str] = deque()
        self._total_max = total_max
        self._lane_max = lane_max
        self.size = 0

    def put(self, lane: str, item: T) -> bool:
        """Queue an item; False when the queue or the lane is full."""
        if self.size >= self._total_max:
            return False
        waiting = self._lanes.get(lane)
        if waiting is None:
            self._lanes[lane] = deque((item,))
            self._turns.append(lane)
        elif len(waiting) < self._lane_max:
            waiting.append(item)
        else:
            return False
        self.size += 1
        return True

    def take(self) -> T:
        """Take the next item of the lane whose turn it is. Raises IndexError when empty."""
        lane = self._turns.popleft()
        waiting = self._lanes[lane]
        item = waiting.popleft()
        if waiting:
            self._turns.append(lane)
        else:
            del self._lanes[lane]
        self.size -= 1
        return item
