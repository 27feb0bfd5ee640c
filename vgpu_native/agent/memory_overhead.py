"""Memory overhead: memory that processes use and the library does not count.

It consists of contexts and code. The agent computes it from the numbers of the driver and writes it
into the limits page, where it counts against the limit. The option `--no-overhead` of the agent
switches this off.
"""

from collections import Counter
from collections.abc import Collection, Container, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final

import structlog

from vgpu_native.agent.bypass_detection import DriverUsage, Where
from vgpu_native.agent.limits_page_writer import LimitsWriter
from vgpu_native.shared.limits_page import BadLimitsPage

_log: Final = structlog.get_logger("gpuledger.node.agent_process")


class MemoryOverhead:
    """The overhead of pods by card, from consecutive readings of the driver."""

    def __init__(self) -> None:
        """Start without a reading."""
        self._excess: dict[Where, int] = {}
        self._overhead: dict[Where, int] = {}

    def update(
        self,
        reported: Mapping[Where, int],
        seen: Iterable[DriverUsage],
        silent: Container[str] = (),
    ) -> dict[Where, int]:
        """Return the uncounted bytes that are in both this reading and the one before.

        `reported` has the counted bytes, and `seen` the bytes by the driver. A process that has
        just ended is in one reading only, so its memory does not count against the others. The
        driver gave no reading of the cards in `silent`, so their overhead stays the same.
        """
        now = {
            (usage.uid, usage.card): max(usage.memory - reported[usage.uid, usage.card], 0)
            for usage in seen
            if (usage.uid, usage.card) in reported
        }
        lasting = {where: min(excess, self._excess.get(where, 0)) for where, excess in now.items()}
        self._excess = _of_silent(self._excess, reported, silent) | now
        self._overhead = _of_silent(self._overhead, reported, silent) | lasting
        return dict(self._overhead)


def overhead_by_page(
    overhead: Mapping[Where, int], pages: Sequence[tuple[str, Path]]
) -> dict[str, dict[str, int]]:
    """Return the overhead by limits page and card, only for pods with one container.

    `pages` has the pod's uid and the page of each container. In other pods, it is unknown which
    container has the overhead.
    """
    containers = Counter(uid for uid, _ in pages)
    return {
        str(page): {card: amount for (owner, card), amount in overhead.items() if owner == uid}
        for uid, page in pages
        if containers[uid] == 1
    }


def count_against_limits(limits: LimitsWriter, overhead: Mapping[str, Mapping[str, int]]) -> None:
    """Write the overhead into limits pages; log the pages that cannot be changed."""
    for page, amounts in overhead.items():
        try:
            limits.set_overhead(Path(page), amounts)
        except (BadLimitsPage, OSError) as error:
            _log.warning("overhead_not_written", page=page, reason=str(error))


def _of_silent(
    known: Mapping[Where, int], reported: Collection[Where], silent: Container[str]
) -> dict[Where, int]:
    """Return the known values of present pods on cards without a reading now."""
    return {
        where: value for where, value in known.items() if where[1] in silent and where in reported
    }
