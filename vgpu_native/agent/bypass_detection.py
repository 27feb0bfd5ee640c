"""Bypass detection: compares the memory that the driver reports of a pod with its regions. Pure.

The library counts the memory that programs request. Contexts and code take some hundred MiB more
per process. Memory beyond that slack was allocated without the library: a bypass. One reading
proves nothing, because both sides change while they are read. So a bypass is reported only after
every reading for `REPORT_SECONDS` has shown it (`Bypass.is_reported`).
"""

from collections.abc import Container, Iterable, Mapping
from typing import Final

import msgspec

from vgpu_native.shared.limits_page import MEBIBYTE

SLACK: Final = 512 * MEBIBYTE
"""Memory that a process may use beside the memory that it counts, bytes."""

REPORT_SECONDS: Final = 15.0
"""Duration from which on a bypass is reported."""

EVICT_SECONDS: Final = 60.0
"""Duration from which on the pod of a bypass is evicted, where that is the policy."""

Where = tuple[str, str]
"""A pod's uid, and a card."""


class ReportedUsage(msgspec.Struct, frozen=True):
    """The memory of a card that the regions of a pod report, bytes."""

    uid: str
    card: str
    memory: int


class DriverUsage(msgspec.Struct, frozen=True):
    """The memory of a card that a pod uses according to the driver: bytes, by so many processes."""

    uid: str
    card: str
    memory: int
    processes: int


class Bypass(msgspec.Struct, frozen=True):
    """A pod has used more of a card than its regions report for `seconds`; amounts in bytes."""

    uid: str
    card: str
    said: int
    seen: int
    seconds: float

    @property
    def excess(self) -> int:
        """The bytes that the driver reports beyond the regions."""
        return self.seen - self.said

    @property
    def is_reported(self) -> bool:
        """Whether the bypass has lasted long enough for a report."""
        return self.seconds >= REPORT_SECONDS

    @property
    def is_evictable(self) -> bool:
        """Whether the bypass has lasted long enough for an eviction."""
        return self.seconds >= EVICT_SECONDS


class BypassDetector:
    """Remembers since when each pod uses more of a card than its regions report."""

    def __init__(self, slack: int = SLACK) -> None:
        """Allow each process `slack` bytes beside the memory that it counts."""
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
        """Return the bypasses of this reading. `now` in seconds of a monotonic clock.

        A pod without regions does not use the library and has no bypass. The driver gave no
        reading of cards in `silent`: bypasses there keep their start.
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
        """Return the uncounted bytes in both this reading and the one before.

        So a process that has just ended does not count against the others. For cards in `silent`
        the last value stays.
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
    """Return the known values of present pods on cards without a reading now."""
    return {where: one for where, one in known.items() if where[1] in silent and where in said}
