"""Planting: a plausible mistake in the real code, for one run."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import msgspec

Put = Callable[[Any, str, Any], None]
"""Replaces an attribute until the run ends."""


class Defect(msgspec.Struct, frozen=True):
    """A mistake: its name, what it is in one sentence, and how it is planted."""

    name: str
    says: str
    plant: Callable[[Put], None]


@contextmanager
def planting(defects: Sequence[Defect]) -> Iterator[None]:
    """Plant defects and take them out again."""
    kept: list[tuple[Any, str, Any]] = []

    def put(owner: Any, name: str, value: Any) -> None:
        kept.append((owner, name, getattr(owner, name)))
        setattr(owner, name, value)

    try:
        for defect in defects:
            defect.plant(put)
        yield
    finally:
        for owner, name, value in reversed(kept):
            setattr(owner, name, value)
