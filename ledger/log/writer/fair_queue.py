"""A bounded queue that is fair between namespaces: `take` serves the namespaces in turn.

The commands of a busy namespace wait behind each other, and not in front of other namespaces.
"""

from collections import deque
from typing import Generic, TypeVar

T = TypeVar("T")


class FairQueue(Generic[T]):
    """First in, first out within a namespace; round robin between namespaces.

    `size` counts the items.
    """

    def __init__(self, *, total_max: int, namespace_max: int) -> None:
        self._waiting: dict[str, deque[T]] = {}
        self._turns: deque[str] = deque()
        self._total_max = total_max
        self._namespace_max = namespace_max
        self.size = 0

    def put(self, namespace: str, item: T) -> bool:
        """Queue an item; False when the queue or the namespace's part of it is full."""
        if self.size >= self._total_max:
            return False
        waiting = self._waiting.get(namespace)
        if waiting is None:
            self._waiting[namespace] = deque((item,))
            self._turns.append(namespace)
        elif len(waiting) < self._namespace_max:
            waiting.append(item)
        else:
            return False
        self.size += 1
        return True

    def take(self) -> T:
        """Take an item of the next namespace. Raises IndexError when empty."""
        namespace = self._turns.popleft()
        waiting = self._waiting[namespace]
        item = waiting.popleft()
        if waiting:
            self._turns.append(namespace)
        else:
            del self._waiting[namespace]
        self.size -= 1
        return item
