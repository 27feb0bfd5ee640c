"""Collecting: removing what was handed out to containers that are no more."""

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
"""An allocation is left alone for so long, whatever the kubelet has noted."""

Key = tuple[str, str]
"""A pod's uid, and a container's name."""

_log: Final = structlog.get_logger("vgpu_native.plugin")


async def collect(
    allocations: AllocationStore, kubelet: KubeletState, settings: PluginSettings
) -> int:
    """Remove allocations that the kubelet no longer has; return how many directories that were.

    The kubelet's checkpoint decides, and nothing is removed where it cannot be read: what it has
    is mounted into a container, or will be when that restarts. A kubelet whose checkpoint was
    removed knows nothing of containers that run on, so whom the ledger still places is kept, too.
    """
    entries = await kubelet.entries()
    if entries is None:
        return 0
    noted = {entry.token for entry in entries}
    known = {(entry.uid, entry.container) for entry in entries}
    now = time.time_ns() // 1_000
    gone = []
    for one in allocations.all():
        if one.token in noted or _is_forgotten(one, known, kubelet):
            continue
        if now - one.time > YOUNG_MICROSECONDS:
            gone += _dropped(allocations, one, settings)
    try:
        orphans = allocations.orphans(now - YOUNG_MICROSECONDS)
        left = [one for one in orphans if one.name not in noted]
    except OSError as error:
        _log.warning("allocations_not_listed", error=str(error))
        left = []
    paths = list(dict.fromkeys([*gone, *left]))
    # Tenants decide how many files there are: whoever serves does not wait for that.
    return await asyncio.to_thread(_remove, allocations, paths) if paths else 0


def _is_forgotten(one: Allocation, known: Set[Key], kubelet: KubeletState) -> bool:
    """Return whether a container may run on without the kubelet knowing of its devices."""
    if not one.tied or one.owner is None or one.owner.key in known:
        return False
    return kubelet.placed(*one.owner.key) is not None


def _dropped(allocations: AllocationStore, one: Allocation, settings: PluginSettings) -> list[Path]:
    """Forget an allocation, and return the directory that is to be removed."""
    try:
        cdi_specification.remove(settings.cdi_dir, one.token)
        allocations.drop(one)
    except OSError as error:
        _log.warning("allocation_not_dropped", token=one.token, error=str(error))
        return []
    return [allocations.directory(one)]


def _remove(allocations: AllocationStore, directories: Sequence[Path]) -> int:
    """Remove directories with all they have, without following links; return how many."""
    removed = 0
    for directory in directories:
        try:
            allocations.release(directory)
            removed += 1
        except OSError as error:
            _log.warning("allocation_not_removed", directory=str(directory), error=str(error))
    return removed
