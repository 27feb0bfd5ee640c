"""Pre-start assignment: assigns an allocation to the container that starts with it.

From then on, the allocation's limits page and region belong to the container.
"""

import stat
from contextlib import suppress
from pathlib import Path
from typing import Final

import msgspec
import structlog

from vgpu_native.plugin.allocation import cdi_specification, container_environment
from vgpu_native.plugin.allocation.allocation_store import (
    Allocation,
    AllocationStore,
    owner_of,
)
from vgpu_native.plugin.allocation.initial_limits import is_limited, limits_of
from vgpu_native.plugin.allocation.region_file_systems import slot_in
from vgpu_native.plugin.grpc_status import failed_precondition, unavailable
from vgpu_native.plugin.placement_source import PlacedContainer
from vgpu_native.plugin.plugin_settings import PluginSettings
from vgpu_native.shared import limits_page
from vgpu_native.shared.limits_page import BadLimitsPage

_log: Final = structlog.get_logger("vgpu_native.plugin")


def problem(allocation: Allocation, container: PlacedContainer, settings: PluginSettings) -> str:
    """Return why a response is wrong for a container; empty if it is right."""
    if any(share.profile for share in container.shares):
        return f"{container} was placed on MIG instances, which this plugin does not create"
    if allocation.cdi:
        return ""
    if set(allocation.cards) != set(container.cards):
        return (
            f"{container} is on {', '.join(container.cards)} in the ledger, but received"
            f" {', '.join(allocation.cards)}: the kubelet allocated pods in another order than"
            " that of their placements. Delete the pod, so that its controller creates another;"
            " with the setting cdi this cannot happen"
        )
    if is_limited(container, settings) and not allocation.limited:
        return (
            f"{container} shares its cards, but its response has no limits. Delete the pod, so that"
            " its controller creates another; with the setting cdi this cannot happen"
        )
    return ""


def assign(
    allocations: AllocationStore,
    allocation: Allocation,
    container: PlacedContainer,
    settings: PluginSettings,
) -> None:
    """Assign an allocation to a container. Raises OSError, RejectedCall for a wrong response."""
    owner = owner_of(container)
    if mistake := problem(allocation, container, settings):
        allocations.put(
            msgspec.structs.replace(allocation, owner=owner, tied=False, problem=mistake)
        )
        raise failed_precondition(mistake)
    known = allocation.tied and allocation.owner == owner
    if allocation.cdi:
        limited = is_limited(container, settings)
        allocation = msgspec.structs.replace(allocation, cards=container.cards, limited=limited)
    if allocation.limited:
        _limit(allocations, allocation, container, settings, known=known)
    if allocation.cdi:
        _describe(allocations, allocation, container, settings)
    assigned = msgspec.structs.replace(allocation, owner=owner, tied=True, problem="")
    if assigned != allocations.get(assigned.token):
        allocations.put(assigned)
        _log.info(
            "container_assigned",
            allocation=assigned.token,
            container=str(container),
            cards=",".join(assigned.cards),
        )


def _limit(
    allocations: AllocationStore,
    allocation: Allocation,
    container: PlacedContainer,
    settings: PluginSettings,
    *,
    known: bool,
) -> None:
    """Write the limits page, unless it is this container's already; then the agent updates it."""
    if not _is_plain_file(settings.library):
        raise unavailable(
            f"library {settings.library} is not a file, so {container} cannot be limited: install"
            " the library there; then the container starts"
        )
    slot = slot_in(allocation.token)
    if slot and not allocations.slots.is_mounted(slot):
        raise unavailable(
            f"slot {allocations.slots.path(slot)} is not mounted, so {container} cannot create its"
            " region: restart the agent's pod, because its init container mounts the slot"
        )
    page = allocations.page(allocation)
    if known:
        with suppress(OSError, BadLimitsPage):
            limits = limits_page.read(page)
            if {device.uuid for device in limits.devices} == set(container.cards):
                return
    limits_page.write(page, limits_of(container, settings))


def _describe(
    allocations: AllocationStore,
    allocation: Allocation,
    container: PlacedContainer,
    settings: PluginSettings,
) -> None:
    limited = allocation.limited
    variables = container_environment.environment(
        allocation.cards, container.shares, settings, limited=limited
    )
    page, region = allocations.page(allocation), allocations.region(allocation)
    mounted = container_environment.mounts(page, region, settings, limited=limited)
    cdi_specification.write(settings.cdi_dir, allocation.token, variables, mounted)


def _is_plain_file(path: Path) -> bool:
    """Return whether the path is a regular file and not a link."""
    try:
        return stat.S_ISREG(path.lstat().st_mode)
    except OSError:
        return False
