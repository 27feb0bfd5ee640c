"""Owner correction: replaces assumed owners of allocations by those that the kubelet has stored.

The kubelet stores the result of an `Allocate` before it calls again. So no assumed owner outlives
the next `Allocate`.
"""

from collections.abc import Iterable, Sequence

import msgspec

from vgpu_native.plugin.allocation.allocation_store import (
    Allocation,
    AllocationStore,
    ContainerOwner,
    is_fresh,
    owner_of,
)
from vgpu_native.plugin.kubelet.kubelet_checkpoint import CheckpointEntry
from vgpu_native.plugin.kubelet.kubelet_state import KubeletState
from vgpu_native.plugin.kubelet.pod_resources import DeviceHolder


def correct_by_checkpoint(
    allocations: AllocationStore,
    kubelet: KubeletState,
    entries: Sequence[CheckpointEntry],
    now: int,
) -> None:
    """Correct the owners of unassigned allocations; `now` in µs of Unix time.

    An allocation that is missing from the checkpoint was never used and loses its owner. Raises
    OSError.
    """
    by_token = {entry.token: entry for entry in entries if entry.token}
    for allocation in allocations.all():
        if allocation.tied:
            continue
        entry = by_token.get(allocation.token)
        if entry is not None:
            _give(allocations, allocation, _owner(kubelet, entry))
        elif allocation.owner and not is_fresh(allocation, now):
            _give(allocations, allocation, None)


def correct_by_pod_resources(
    allocations: AllocationStore, kubelet: KubeletState, holders: Iterable[DeviceHolder]
) -> None:
    """Correct the owners of unassigned allocations by the pod-resources API. Raises OSError.

    An owner that is missing from the API is kept, because the API omits init containers.
    """
    for holder in holders:
        unassigned = [
            allocation for allocation in allocations.with_ids(holder.ids) if not allocation.tied
        ]
        container = kubelet.named(holder)
        # Of several allocations with these ids, only the newest is surely not an init container's.
        if unassigned and container is not None:
            _give(allocations, unassigned[0], owner_of(container))


def _owner(kubelet: KubeletState, entry: CheckpointEntry) -> ContainerOwner:
    container = kubelet.placed(entry.uid, entry.container)
    return owner_of(container) if container else ContainerOwner("", "", entry.uid, entry.container)


def _give(
    allocations: AllocationStore, allocation: Allocation, owner: ContainerOwner | None
) -> None:
    if allocation.owner != owner:
        allocations.put(msgspec.structs.replace(allocation, owner=owner))
