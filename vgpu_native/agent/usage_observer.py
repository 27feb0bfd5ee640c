"""Usage observer: the memory and time of cards that containers use, by regions and driver.

A region reports the usage of its own container, so a claim counts only up to the limit.
"""

import asyncio
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

import msgspec
import structlog

from vgpu_native.agent.bypass_detection import (
    Bypass,
    BypassDetector,
    DriverUsage,
    ReportedUsage,
)
from vgpu_native.agent.lowered_limits import cards_within_limits
from vgpu_native.agent.memory_overhead import MemoryOverhead, overhead_by_page
from vgpu_native.agent.pod_cgroups import Cgroups
from vgpu_native.nvml.nvml_port import Load, NvmlDriver, NvmlError
from vgpu_native.plugin.allocation.allocation_store import Allocation, ContainerOwner
from vgpu_native.shared import usage_region
from vgpu_native.shared.layout import NO_LIMIT
from vgpu_native.shared.limits_page import BadLimitsPage, ContainerLimits, DeviceLimits
from vgpu_native.shared.limits_page import read as read_page
from vgpu_native.shared.usage_region import BadRegion, UsageRegion

NANOSECONDS: Final = 1_000_000_000

_log: Final = structlog.get_logger("gpuledger.node.agent_process")


class LimitedContainer(msgspec.Struct, frozen=True):
    """A limited container, and the paths of its limits page and its region."""

    owner: ContainerOwner
    page: Path
    region: Path


class ContainerUse(msgspec.Struct, frozen=True):
    """The usage of one card by a container: bytes, and seconds for which it kept the card busy.

    `index` is the card's place among the container's. Without a limit, `memory_limit` is 0 bytes
    and `cores_limit` 100 percent. `busy` is the percentage of the time since the last reading.
    `seen` are the bytes that the whole pod uses of the card according to the driver, None if
    unknown.
    """

    namespace: str
    pod: str
    uid: str
    container: str
    card: str
    index: int
    memory_used: int
    memory_limit: int
    cores_limit: int
    busy_seconds: float
    busy: float
    processes: int
    seen: int | None = None


class UsageObservation(msgspec.Struct, frozen=True):
    """The result of one reading. `broken` maps files that cannot be read to the reason.

    `within` has, by limits page, the generation that was read and the cards of which the pod uses
    at most its present limits.
    """

    uses: tuple[ContainerUse, ...] = ()
    loads: dict[str, Load] = {}
    drifts: tuple[Bypass, ...] = ()
    overhead: dict[str, dict[str, int]] = {}
    broken: dict[str, str] = {}
    within: dict[str, tuple[int, tuple[str, ...]]] = {}
    time: float = 0.0


def limited_container(allocation: Allocation, page: Path, region: Path) -> LimitedContainer | None:
    """Return the container of an allocation; None if it is unlimited or not known for sure."""
    if not allocation.tied or not allocation.limited or allocation.owner is None:
        return None
    return LimitedContainer(allocation.owner, page, region / "region")


class UsageObserver:
    """Reads regions and driver, and compares the two."""

    def __init__(self, driver: NvmlDriver, cgroups: Cgroups, *, comparer: BypassDetector) -> None:
        """Begin without a reading."""
        self._driver, self._cgroups, self._comparer = driver, cgroups, comparer
        self._overhead = MemoryOverhead()
        self._busy: dict[tuple[Path, str], int] = {}
        self._looked = 0.0
        self._blind = ""
        self._broken: frozenset[str] = frozenset()

    async def look(
        self, holders: Sequence[LimitedContainer], cards: Iterable[str]
    ) -> UsageObservation:
        """Return the present usage of containers and cards."""
        before = await asyncio.to_thread(_read_all, holders)
        asked = tuple(cards)
        loads, seen = await self._driven(asked)
        silent = set(asked) - seen.cards
        after = await asyncio.to_thread(_read_all, holders)
        now = time.monotonic()
        reported = _usage_by_pod(holders, before, after)
        self._log_broken(holders, after.broken)
        uses = tuple(self._uses(holders, after, now, seen))
        overhead = self._overhead.update(reported, seen.pods, silent)
        self._looked = now
        return UsageObservation(
            uses,
            loads,
            self._comparer.compare(
                [ReportedUsage(*where, memory) for where, memory in reported.items()],
                seen.pods,
                now,
                silent,
            ),
            overhead_by_page(overhead, [(held.owner.uid, held.page) for held in holders]),
            after.broken,
            cards_within_limits(_read_pages(holders, after), seen.of),
            time.time(),
        )

    async def _driven(self, cards: tuple[str, ...]) -> tuple[dict[str, Load], "_Seen"]:
        """Return the driver's readings of the cards that answer."""
        loads: dict[str, Load] = {}
        seen = _Seen()
        blind = []
        for card in cards:
            try:
                loads[card] = await self._driver.ask(self._driver.nvml.load, card)
                running = await self._driver.ask(self._driver.nvml.processes, card)
            except NvmlError as error:
                blind.append(str(error))
                continue
            seen.cards.add(card)
            for process in running:
                if uid := self._cgroups.pod_of(process.pid):
                    seen.add(uid, card, process.memory)
        self._log_blind("; ".join(dict.fromkeys(blind)))
        return loads, seen

    def _log_blind(self, reason: str) -> None:
        if reason and reason != self._blind:
            _log.warning("processes_not_seen", reason=reason)
        self._blind = reason

    def _log_broken(self, holders: Sequence[LimitedContainer], broken: dict[str, str]) -> None:
        """Log containers whose files cannot be read, each once until it can be read again."""
        for held in holders:
            for path in {str(held.page), str(held.region)} & (broken.keys() - self._broken):
                _log.warning(
                    "container_not_read",
                    namespace=held.owner.namespace,
                    pod=held.owner.pod,
                    container=held.owner.name,
                    reason=broken[path],
                )
        self._broken = frozenset(broken)

    def _uses(
        self,
        holders: Sequence[LimitedContainer],
        read: "_Read",
        now: float,
        seen: "_Seen",
    ) -> Iterable[ContainerUse]:
        busy: dict[tuple[Path, str], int] = {}
        for held in holders:
            limits, region = read.limits.get(held.page), read.regions.get(held.region)
            for index, device in enumerate(limits.devices if limits is not None else ()):
                where = (held.region, device.uuid)
                spent = region.busy_of(device.uuid) if region is not None else 0
                busy[where] = spent
                # A container that was absent at the last reading counts as idle until now.
                worked = max(spent - self._busy.get(where, spent), 0) / NANOSECONDS
                yield ContainerUse(
                    held.owner.namespace,
                    held.owner.pod,
                    held.owner.uid,
                    held.owner.name,
                    device.uuid,
                    index,
                    region.memory_of(device.uuid) if region is not None else 0,
                    0 if device.memory == NO_LIMIT else device.memory,
                    device.cores,
                    spent / NANOSECONDS,
                    min(100 * worked / max(now - self._looked, 0.001), 100.0),
                    len(region.processes) if region is not None else 0,
                    seen.of(held.owner.uid, device.uuid),
                )
        self._busy = busy


class _Seen:
    """The driver's readings of pods, on the cards that answered."""

    def __init__(self) -> None:
        self.cards: set[str] = set()
        self._pods: dict[tuple[str, str], DriverUsage] = {}

    @property
    def pods(self) -> tuple[DriverUsage, ...]:
        return tuple(self._pods.values())

    def add(self, uid: str, card: str, memory: int) -> None:
        """Count a process."""
        known = self._pods.get((uid, card), DriverUsage(uid, card, 0, 0))
        self._pods[uid, card] = DriverUsage(uid, card, known.memory + memory, known.processes + 1)

    def of(self, uid: str, card: str) -> int | None:
        """Return the bytes that a pod uses of a card, None without a reading of the card."""
        if card not in self.cards:
            return None
        usage = self._pods.get((uid, card))
        return usage.memory if usage is not None else 0


class _Read(msgspec.Struct):
    regions: dict[Path, UsageRegion]
    limits: dict[Path, ContainerLimits]
    broken: dict[str, str]


def _read_all(holders: Sequence[LimitedContainer]) -> _Read:
    read = _Read({}, {}, {})
    for held in holders:
        try:
            read.limits[held.page] = read_page(held.page)
        except (BadLimitsPage, OSError) as error:
            read.broken[str(held.page)] = str(error)
        try:
            read.regions[held.region] = usage_region.read(held.region)
        except FileNotFoundError:
            # None of its processes has used a card yet.
            continue
        except BadRegion as error:
            read.broken[str(held.region)] = str(error)
    return read


def _usage_by_pod(
    holders: Sequence[LimitedContainer], before: _Read, after: _Read
) -> dict[tuple[str, str], int]:
    """Return the reported usage, by uid and card: the larger of two readings of each region.

    A container without a readable region counts as using nothing.
    """
    reported: dict[tuple[str, str], int] = {}
    for held in holders:
        limits = after.limits.get(held.page)
        regions_of = [read.regions.get(held.region) for read in (before, after)]
        for device in limits.devices if limits is not None else ():
            where = (held.owner.uid, device.uuid)
            most = max(
                region.memory_of(device.uuid) if region is not None else 0 for region in regions_of
            )
            reported[where] = reported.get(where, 0) + _credible_usage(most, device)
    return reported


def _read_pages(
    holders: Sequence[LimitedContainer], read: _Read
) -> list[tuple[str, str, ContainerLimits]]:
    """Return the pod's uid, the path and the content of each page that was read."""
    return [
        (held.owner.uid, str(held.page), read.limits[held.page])
        for held in holders
        if held.page in read.limits
    ]


def _credible_usage(claimed: int, limits: DeviceLimits) -> int:
    """Return the bytes of a region's claim that count: at most the container's limit.

    The library allocates no more. So another program wrote a larger claim to hide a bypass.
    """
    return min(claimed, limits.most)
