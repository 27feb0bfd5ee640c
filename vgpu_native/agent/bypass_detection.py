"""Drifting: comparing what a pod's processes use, as the driver sees it, with what they say. Pure.

The library counts what it is asked for. Contexts and code take memory beside that, some hundred MiB
for each process; more than so much beyond what a pod's regions say is memory that was taken past
the library. A moment proves nothing, because both sides change while they are read: only what is
there at every look for some time is told.
"""

from collections.abc import Container, Iterable, Mapping
from typing import Final

import msgspec

from vgpu_native.shared.limits_page import MEBIBYTE

SLACK: Final = 512 * MEBIBYTE
"""What a process may use beside what it counts, bytes."""

Where = tuple[str, str]
"""A pod's uid, and a card."""


class ReportedUsage(msgspec.Struct, frozen=True):
    """What the regions of a pod say that it uses of a card, bytes."""

    uid: str
    card: str
    memory: int


class DriverUsage(msgspec.Struct, frozen=True):
    """What the driver sees a pod use of a card: bytes, by how many processes."""

    uid: str
    card: str
    memory: int
    processes: int


class Bypass(msgspec.Struct, frozen=True):
    """A pod uses more of a card than its regions say, for `seconds` by now; `excess` in bytes."""

    uid: str
    card: str
    said: int
    seen: int
    seconds: float

    @property
    def excess(self) -> int:
        """How much more it uses than it says."""
        return self.seen - self.said


class BypassDetector:
    """Remembers since when each pod is beyond what it says."""

    def __init__(self, slack: int = SLACK) -> None:
        """Let each process use so many bytes beside what is counted."""
        self._slack = slack
        self._since: dict[Where, float] = {}
        self._excess: dict[Where, int] = {}
        self._overhead: dict[Where, int] = {}

    def compare(
        self,
        said: Iterable[ReportedUsage],
        seen: Iterable[DriverUsage],
        now: float,
        silent: Container[str] = (),
    ) -> tuple[Bypass, ...]:
        """Return who is beyond what they say. `now` in seconds of a clock that only goes on.

        Who says nothing at all is not under the library, and nobody's drift. Of cards that are
        `silent` nothing was seen at this look: who was beyond there before may still be.
        """
        before = {where: since for where, since in self._since.items() if where[1] in silent}
        claimed = {(one.uid, one.card): one.memory for one in said}
        found = []
        for one in seen:
            where = (one.uid, one.card)
            memory = claimed.get(where)
            if memory is not None and one.memory - memory > self._slack * max(one.processes, 1):
                since = self._since.get(where, now)
                found.append(Bypass(*where, memory, one.memory, now - since))
        self._since = before | {(one.uid, one.card): now - one.seconds for one in found}
        return tuple(found)

    def overhead(
        self, said: Mapping[Where, int], seen: Iterable[DriverUsage], silent: Container[str] = ()
    ) -> dict[Where, int]:
        """Return what was used beyond what is counted at this look and the one before, bytes.

        So a process that has just ended is not held against those that are left. Of cards that are
        `silent` it is what it was.
        """
        now = {
            (one.uid, one.card): max(one.memory - said[one.uid, one.card], 0)
            for one in seen
            if (one.uid, one.card) in said
        }
        lasting = {where: min(excess, self._excess.get(where, 0)) for where, excess in now.items()}
        self._excess = _of_silent(self._excess, said, silent) | now
        self._overhead = _of_silent(self._overhead, said, silent) | lasting
        return dict(self._overhead)


def _of_silent(
    known: Mapping[Where, int], said: Container[Where], silent: Container[str]
) -> dict[Where, int]:
    """Return what is known of pods that are still there, on cards that tell nothing now."""
    return {where: one for where, one in known.items() if where[1] in silent and where in said}
