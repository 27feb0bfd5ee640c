"""Garbage collection: removes the allocations of containers that the kubelet no longer has."""

import asyncio
import time
from collections.abc import Sequence, Set
from pathlib import Path
from typing import Final

import structlog

from vgpu_native.plugin.allocation import cdi_specification
from vgpu_native.plugin.allocation.allocation_store import Allocation, AllocationStore
from vgpu_native.plugin.kubelet.kubelet_state import KubeletState
from vgpu_native.plugin.plugin_settings import PluginSettings

YOUNG_MICROSECONDS: Final = 120_000_000
"""Minimum age of an allocation that is removed."""

EARLY_MICROSECONDS: Final = 10_000_000
"""Minimum age where an allocation needs the room; the kubelet stores an answer in less time."""

Key = tuple[str, str]
"""A pod's uid, and a container's name."""

_log: Final = structlog.get_logger("vgpu_native.plugin")


async def collect(
    allocations: AllocationStore,
    kubelet: KubeletState,
    settings: PluginSettings,
    *,
    early: bool = False,
) -> int:
    """Remove allocations that the kubelet no longer has; return the number of directories.

    The kubelet's checkpoint decides; without it, nothing is removed. A container mounts the
    directories in the checkpoint, now or when it restarts. A kubelet whose checkpoint was deleted
    has no entries of running containers, so allocations that the ledger still places are kept. With
    `early`, younger allocations are removed, too.
    """
    entries = await kubelet.entries()
    if entries is None:
        return 0
    noted = {entry.token for entry in entries}
    known = {(entry.uid, entry.container) for entry in entries}
    now, young = time.time_ns() // 1_000, EARLY_MICROSECONDS if early else YOUNG_MICROSECONDS
    gone = []
    for allocation in allocations.all():
        if allocation.token in noted or _is_forgotten(allocation, known, kubelet):
            continue
        if now - allocation.time > young:
            gone += _dropped(allocations, allocation, settings)
    try:
        orphans = allocations.orphans(now - young)
        left = [orphan for orphan in orphans if orphan.name not in noted]
    except OSError as error:
        _log.warning("allocations_not_listed", error=str(error))
        left = []
    paths = list(dict.fromkeys([*gone, *left]))
    # Use a thread, because tenants decide the number of files and the plugin must keep serving.
    return await asyncio.to_thread(_remove, allocations, paths) if paths else 0


def _is_forgotten(allocation: Allocation, known: Set[Key], kubelet: KubeletState) -> bool:
    """Return whether a container may still run although the checkpoint lacks its devices."""
    if not allocation.tied or allocation.owner is None or allocation.owner.key in known:
        return False
    return kubelet.placed(*allocation.owner.key) is not None


def _dropped(
    allocations: AllocationStore, allocation: Allocation, settings: PluginSettings
) -> list[Path]:
    """Drop an allocation, and return the directory to remove; [] after an error."""
    try:
        cdi_specification.remove(settings.cdi_dir, allocation.token)
        allocations.drop(allocation)
    except OSError as error:
        _log.warning("allocation_not_dropped", token=allocation.token, error=str(error))
        return []
    return [allocations.directory(allocation)]


def _remove(allocations: AllocationStore, directories: Sequence[Path]) -> int:
    """Remove directories and their content, without following links; return the number."""
    removed = 0
    for directory in directories:
        try:
            allocations.release(directory)
            removed += 1
        except OSError as error:
            _log.warning("allocation_not_removed", directory=str(directory), error=str(error))
    return removed
