"""Counting: what parts of the service tell of themselves, for metrics that they do not know."""

from typing import Protocol


class Count(Protocol):
    """Counts something for the metrics."""

    def __call__(self, name: str, *labels: str) -> None:
        """Raise the counter of this name and these labels by one."""
        ...


def uncounted(name: str, *labels: str) -> None:
    """Count nothing, for whoever keeps no metrics."""
