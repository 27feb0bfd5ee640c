"""Initial limits: which containers are limited, and the limits on their first page. Pure.

The limits are 0 bytes while the container of an allocation is unknown, then those of the container.
Later the agent changes them.
"""

from collections.abc import Sequence

from vgpu_native.plugin.placement_source import PlacedContainer
from vgpu_native.plugin.plugin_settings import PluginSettings
from vgpu_native.shared import container_limits
from vgpu_native.shared.limits_page import ContainerLimits, DeviceLimits, flags_of


def is_limited(container: PlacedContainer, settings: PluginSettings) -> bool:
    """Return whether a container runs with the library, as it does if it shares a card."""
    return settings.limit_whole_cards or not container.exclusive


def limits_of(container: PlacedContainer, settings: PluginSettings) -> ContainerLimits:
    """Return the limits of a container; their order is free, because the library uses uuids."""
    return container_limits.limits_of(container.shares, flags(settings))


def closed(cards: Sequence[str], settings: PluginSettings) -> ContainerLimits:
    """Return limits of 0 bytes, for cards whose container is not known yet."""
    return ContainerLimits(tuple(DeviceLimits(uuid, memory=0) for uuid in cards), flags(settings))


def flags(settings: PluginSettings) -> int:
    """Return the flags of a limits page."""
    return flags_of(
        may_disable=settings.may_disable,
        oversubscribe=settings.oversubscribe,
        cores_off=settings.cores_off,
        contexts_exempt=not settings.overhead,
    )
