"""Limits page writer: keeps the limits of running containers equal to the ledger.

The plugin writes the page of a container when the container gets its cards. When the placement of
the container changes later, the new limits are written into the page in place. The processes of the
container read them at their next allocation of memory. When a placement is gone, the limits do not
change: the pod keeps them to its end. When the log is lost, every pod keeps its limits.
"""

import contextlib
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Final

import msgspec
import structlog

from vgpu_native.agent.lowered_limits import with_earlier_limit, without_earlier_limits
from vgpu_native.plugin.placement_source import PlacedContainer
from vgpu_native.shared.container_limits import limits_of
from vgpu_native.shared.limits_page import BadLimitsPage, ContainerLimits, DeviceLimits, LimitsPage

_log: Final = structlog.get_logger("gpuledger.node.agent_process")

Key = tuple[str, str]
"""A pod's uid, and a container's name."""


class LimitsWriter:
    """The pages of this node's containers."""

    def __init__(self, flags: int = 0) -> None:
        """`flags` are written to every page."""
        self._flags = flags
        self._pages: dict[Path, LimitsPage] = {}
        self._overhead: dict[Path, dict[str, int]] = {}
        self.troubles: dict[Key, str] = {}

    def apply(self, pages: Mapping[Key, Path], containers: Iterable[PlacedContainer]) -> list[Key]:
        """Update pages, and close all others; return the containers whose limits have changed.

        `pages` are those of containers that are known for sure. A page that cannot be changed is
        logged, named in `troubles`, and stays as it is.
        """
        for path in self._pages.keys() - set(pages.values()):
            self._forget(path)
        promised = {container.key: container for container in containers if container.key in pages}
        self.troubles = {key: why for key, why in self.troubles.items() if key in promised}
        return [key for key, container in promised.items() if self._change(pages[key], container)]

    def set_overhead(self, path: Path, overhead: Mapping[str, int]) -> bool:
        """Write the uncounted bytes by card; return whether that changed the page.

        Raises BadLimitsPage, OSError.
        """
        page = self._page(path)
        self._overhead[path] = dict(overhead)
        return page.change(self._with_overhead(path, page.limits))

    def settle(self, path: Path, generation: int, cards: Collection[str]) -> bool:
        """Drop the earlier limits of these cards; return whether there were any.

        A page that has changed since `generation` stays as it is. Raises BadLimitsPage, OSError.
        """
        page = self._page(path)
        return page.change(without_earlier_limits(page.limits, generation, cards))

    def limits(self, path: Path) -> ContainerLimits | None:
        """Return the limits of a page, None when it cannot be read."""
        with contextlib.suppress(BadLimitsPage, OSError):
            return self._page(path).limits
        return None

    def close(self) -> None:
        """Close all pages."""
        for path in list(self._pages):
            self._forget(path)

    def _change(self, path: Path, container: PlacedContainer) -> bool:
        try:
            page = self._page(path)
            changed = page.change(self._with_overhead(path, self._wanted(page, container)))
        except (BadLimitsPage, OSError, ValueError) as error:
            if self.troubles.get(container.key) != str(error):
                _log.error("limits_not_changed", container=str(container), reason=str(error))
            self.troubles[container.key] = str(error)
            return False
        self.troubles.pop(container.key, None)
        if changed:
            _log.info("limits_changed", container=str(container), devices=_shown(page.limits))
        return changed

    def _wanted(self, page: LimitsPage, container: PlacedContainer) -> ContainerLimits:
        """Return a container's limits in the order of its page, where it has those cards."""
        places = {device.uuid: place for place, device in enumerate(page.limits.devices)}
        shares = sorted(container.shares, key=lambda share: places.get(share.uuid, len(places)))
        wanted = limits_of(shares, self._flags)
        if len(wanted.devices) != len(page.limits.devices):
            return wanted
        pairs = zip(page.limits.devices, wanted.devices, strict=True)
        return msgspec.structs.replace(
            wanted, devices=tuple(with_earlier_limit(*pair) for pair in pairs)
        )

    def _with_overhead(self, path: Path, limits: ContainerLimits) -> ContainerLimits:
        overhead = self._overhead.get(path, {})
        devices = tuple(
            msgspec.structs.replace(device, overhead=overhead.get(device.uuid, 0))
            for device in limits.devices
        )
        return msgspec.structs.replace(limits, devices=devices)

    def _page(self, path: Path) -> LimitsPage:
        """Return a page, mapped once. Raises BadLimitsPage, OSError."""
        page = self._pages.get(path)
        if page is not None and not page.is_current():
            self._forget(path)
            page = None
        if page is None:
            page = self._pages[path] = LimitsPage(path)
        return page

    def _forget(self, path: Path) -> None:
        self._overhead.pop(path, None)
        self._pages.pop(path).close()


def _shown(limits: ContainerLimits) -> list[str]:
    return [_of(device) for device in limits.devices]


def _of(device: DeviceLimits) -> str:
    return f"{device.uuid}: {device.memory} bytes, {device.cores} %"
