"""Bypass detection: whether a pod has allocated memory of a card without the library. Pure.

The driver reports all memory that a pod uses, and the regions of its containers have the memory
that the library counts. Contexts and code take some hundred MiB more per process, the slack. A pod
that uses still more bypasses the library. One reading proves nothing, because the usage changes
during the reading. So a bypass is reported only if all readings of `REPORT_SECONDS` show it.
"""

from collections.abc import Container, Iterable
from typing import Final

import msgspec

from vgpu_native.shared.limits_page import MEBIBYTE

SLACK: Final = 512 * MEBIBYTE
"""Memory that a process may use beside the memory that it counts, bytes."""

REPORT_SECONDS: Final = 15.0
"""A bypass is reported when it has lasted this long."""

EVICT_SECONDS: Final = 60.0
"""With the policy `evict`, the pod is evicted when its bypass has lasted this long."""

Where = tuple[str, str]
"""A pod's uid, and a card."""


class ReportedUsage(msgspec.Struct, frozen=True):
    """The memory of a card that the regions of a pod report, bytes."""

    uid: str
    card: str
    memory: int


class DriverUsage(msgspec.Struct, frozen=True):
    """The bytes of a card that a pod uses by the driver, and the number of its processes."""

    uid: str
    card: str
    memory: int
    processes: int


class Bypass(msgspec.Struct, frozen=True):
    """A pod has used more of a card than its regions report for `seconds`; amounts in bytes."""

    uid: str
    card: str
    reported: int
    seen: int
    seconds: float

    @property
    def excess(self) -> int:
        """The bytes that the driver reports beyond the regions."""
        return self.seen - self.reported

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

    def compare(
        self,
        reported: Iterable[ReportedUsage],
        seen: Iterable[DriverUsage],
        now: float,
        silent: Container[str] = (),
    ) -> tuple[Bypass, ...]:
        """Return the bypasses of this reading. `now` in seconds of a monotonic clock.

        A pod without regions does not use the library and has no bypass. The driver gave no
        reading of cards in `silent`: bypasses there keep their start.
        """
        before = {where: since for where, since in self._since.items() if where[1] in silent}
        claimed = {(report.uid, report.card): report.memory for report in reported}
        bypasses = []
        for usage in seen:
            where = (usage.uid, usage.card)
            memory = claimed.get(where)
            if memory is not None and usage.memory - memory > self._slack * max(usage.processes, 1):
                since = self._since.get(where, now)
                bypasses.append(Bypass(*where, memory, usage.memory, now - since))
        self._since = before | {
            (bypass.uid, bypass.card): now - bypass.seconds for bypass in bypasses
        }
        return tuple(bypasses)
