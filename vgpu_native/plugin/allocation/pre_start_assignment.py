"""Tying: an allocation and the container it turned out to be for.

From then on the limits page and the region of the allocation's directory are the container's.
"""

from contextlib import suppress

import msgspec

from vgpu_native.plugin.allocation import allocate_response, cdi_specification
from vgpu_native.plugin.allocation.allocation_limits import is_limited, limits_of
from vgpu_native.plugin.allocation.allocation_store import (
    Allocation,
    AllocationStore,
    is_plain_file,
    owner_of,
)
from vgpu_native.plugin.allocation.region_file_systems import slot_in
from vgpu_native.plugin.grpc_status import failed_precondition, unavailable
from vgpu_native.plugin.placement_source import PlacedContainer
from vgpu_native.plugin.plugin_settings import PluginSettings
from vgpu_native.shared import limits_page
from vgpu_native.shared.limits_page import BadLimitsPage


def problem(allocation: Allocation, container: PlacedContainer, settings: PluginSettings) -> str:
    """Say why an answer is not right for a container; empty when it is."""
    if any(share.profile for share in container.shares):
        return f"{container} was placed on instances of cards, which this plugin does not make"
    if allocation.cdi:
        return ""
    if set(allocation.cards) != set(container.cards):
        return (
            f"{container} is on {', '.join(container.cards)} in the ledger, but was answered"
            f" {', '.join(allocation.cards)}: the kubelet allocated pods in another order than they"
            " were placed in. Delete the pod, so that its controller makes another; with the"
            " setting cdi this cannot happen"
        )
    if is_limited(container, settings) and not allocation.limited:
        return (
            f"{container} shares its cards, but was answered as one that has them alone. Delete the"
            " pod, so that its controller makes another; with the setting cdi this cannot happen"
        )
    return ""


def assign(
    allocations: AllocationStore,
    allocation: Allocation,
    container: PlacedContainer,
    settings: PluginSettings,
) -> None:
    """Make an allocation a container's. Raises OSError, Refused when the answer is not right."""
    owner = owner_of(container)
    if found := problem(allocation, container, settings):
        allocations.put(msgspec.structs.replace(allocation, owner=owner, tied=False, problem=found))
        raise failed_precondition(found)
    known = allocation.tied and allocation.owner == owner
    if allocation.cdi:
        limited = is_limited(container, settings)
        allocation = msgspec.structs.replace(allocation, cards=container.cards, limited=limited)
    if allocation.limited:
        _limit(allocations, allocation, container, settings, known=known)
    if allocation.cdi:
        _describe(allocations, allocation, container, settings)
    tied = msgspec.structs.replace(allocation, owner=owner, tied=True, problem="")
    if tied != allocations.get(tied.token):
        allocations.put(tied)


def _limit(
    allocations: AllocationStore,
    allocation: Allocation,
    container: PlacedContainer,
    settings: PluginSettings,
    *,
    known: bool,
) -> None:
    """Write the limits page, unless it is this container's already: then the agent keeps it."""
    if not is_plain_file(settings.library):
        raise unavailable(
            f"library {settings.library} is no file, so {container} cannot be limited: install it"
            " there; the container starts then"
        )
    slot = slot_in(allocation.token)
    if slot and not allocations.slots.is_mounted(slot):
        raise unavailable(
            f"slot {allocations.slots.path(slot)} is not mounted, so {container} has no place for"
            " its region: start the agent's pod again, whose init container mounts it"
        )
    page = allocations.page(allocation)
    if known:
        with suppress(OSError, BadLimitsPage):
            found = limits_page.read(page)
            if {device.uuid for device in found.devices} == set(container.cards):
                return
    limits_page.write(page, limits_of(container, settings))


def _describe(
    allocations: AllocationStore,
    allocation: Allocation,
    container: PlacedContainer,
    settings: PluginSettings,
) -> None:
    limited = allocation.limited
    variables = allocate_response.environment(
        allocation.cards, container.shares, settings, limited=limited
    )
    page, region = allocations.page(allocation), allocations.region(allocation)
    mounted = allocate_response.mounts(page, region, settings, limited=limited)
    cdi_specification.write(settings.cdi_dir, allocation.token, variables, mounted)
