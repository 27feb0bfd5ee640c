"""Collecting: removing what was handed out to containers that are no more."""

import shutil
import time
from typing import Final

import structlog

from vgpu_native.plugin import cdi
from vgpu_native.plugin.allocations import Allocation, Allocations
from vgpu_native.plugin.settings import PluginSettings
from vgpu_native.plugin.witness import Witness

YOUNG_MICROSECONDS: Final = 120_000_000
"""An allocation is left alone for so long, whatever the kubelet has noted."""

_logger: Final = structlog.get_logger("vgpu_native.plugin")


def collect(allocations: Allocations, witness: Witness, settings: PluginSettings) -> int:
    """Remove allocations that the kubelet no longer has; return how many.

    The kubelet's checkpoint decides, and nothing is removed where it cannot be read: what it has
    is mounted into a container, or will be when that restarts.
    """
    entries = witness.entries()
    if entries is None:
        return 0
    noted = {entry.token for entry in entries}
    now = time.time_ns() // 1_000
    gone = [
        one
        for one in allocations.all()
        if one.token not in noted and now - one.time > YOUNG_MICROSECONDS
    ]
    return sum(_removed(allocations, one, settings) for one in gone) + _cleared(allocations, now)


def _removed(allocations: Allocations, one: Allocation, settings: PluginSettings) -> bool:
    try:
        cdi.remove(settings.cdi_dir, one.token)
        allocations.drop(one)
    except OSError as error:
        _logger.warning("allocation not removed", token=one.token, error=str(error))
        return False
    return True


def _cleared(allocations: Allocations, now: int) -> int:
    """Remove what is left of allocations that could not be kept; return how many."""
    try:
        found = allocations.orphans(now - YOUNG_MICROSECONDS)
        for directory in found:
            shutil.rmtree(directory)
    except OSError as error:
        _logger.warning("orphans not removed", error=str(error))
        return 0
    return len(found)
