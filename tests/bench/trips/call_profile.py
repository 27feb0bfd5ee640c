"""A profile of the product's functions, in the order in which they are entered.

A function counts when it is entered and when it resumes after an await or a yield. Lambdas and
comprehensions belong to the function in which they are written and do not count by themselves.
"""

import gc
import sys
from collections import Counter
from collections.abc import Iterable
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any, Final

import msgspec

PACKAGES: Final = ("ledger", "projections", "webhook", "extender", "gpuledger")
"""The packages whose files count; asyncio, libraries and tests do not."""


class Entry(msgspec.Struct, frozen=True):
    """A function that was entered, and its file relative to the folder of the packages."""

    file: str
    function: str


class Figures(msgspec.Struct, frozen=True):
    """Counts of one trip.

    A move is a call that enters another file than the call before; the first call counts. `back` is
    how many moves enter a file that was entered before.
    """

    files: int
    functions: int
    calls: int
    moves: int
    back: int


class Profile:
    """Records the product's functions that this thread enters while the block runs."""

    def __init__(self) -> None:
        self.entries: list[Entry] = []
        self._prefix = f"{_root()}/"
        self._roots = tuple(f"{self._prefix}{package}/" for package in PACKAGES)

    def __enter__(self) -> "Profile":
        gc.collect()
        gc.disable()  # a finalizer of the product would count wherever it happens to run
        sys.setprofile(self._record)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        sys.setprofile(None)
        gc.enable()

    def _record(self, frame: FrameType, event: str, _: Any) -> None:
        code = frame.f_code
        if event != "call" or not code.co_filename.startswith(self._roots):
            return
        if not code.co_name.startswith("<"):
            file = code.co_filename.removeprefix(self._prefix)
            self.entries.append(Entry(file, code.co_qualname.replace(".<locals>", "")))


def figures(entries: Iterable[Entry]) -> Figures:
    """Return the figures of a trip."""
    calls = list(entries)
    files = {call.file for call in calls}
    visited = visits(calls)
    return Figures(
        files=len(files),
        functions=len(set(calls)),
        calls=len(calls),
        moves=len(visited),
        back=len(visited) - len(files),
    )


def visits(entries: Iterable[Entry]) -> list[tuple[str, list[str]]]:
    """Return the files in the order in which they are entered, each with the functions called."""
    visited: list[tuple[str, list[str]]] = []
    for call in entries:
        if not visited or visited[-1][0] != call.file:
            visited.append((call.file, []))
        visited[-1][1].append(call.function)
    return visited


def pairs(entries: Iterable[Entry]) -> Counter[tuple[str, str]]:
    """Return how many moves lead from one file to another, by pair of files."""
    return Counter(pairwise(file for file, _ in visits(entries)))


def _root() -> Path:
    """Return the folder of the packages that are imported."""
    spec = find_spec(PACKAGES[0])
    assert spec is not None, f"{PACKAGES[0]} cannot be imported"
    assert spec.origin is not None, f"{PACKAGES[0]} has no file"
    return Path(spec.origin).parents[1]
