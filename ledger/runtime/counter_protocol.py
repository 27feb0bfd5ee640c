"""The protocol of a counter, for parts of the service that do not import the metrics."""

from typing import Protocol


class Count(Protocol):
    """Counts something for the metrics."""

    def __call__(self, name: str, *labels: str) -> None:
        """Raise the counter of this name and these labels by one."""
        ...


def uncounted(name: str, *labels: str) -> None:
    """Count nothing, for a caller without metrics."""
