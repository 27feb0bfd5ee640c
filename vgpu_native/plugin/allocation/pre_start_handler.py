"""Pre-start handler: finds the containers and the allocations of a `PreStartContainer` call.

The kubelet's checkpoint and its pod-resources API must agree on the pod. The call waits until they
and the ledger name the container.
"""

import asyncio
from collections.abc import Sequence
from typing import Final

from vgpu_native.plugin.allocation.allocation_store import Allocation, AllocationStore
from vgpu_native.plugin.allocation.pre_start_assignment import assign
from vgpu_native.plugin.grpc_status import RejectedCall, failed_precondition, shown_ids, unavailable
from vgpu_native.plugin.kubelet.kubelet_checkpoint import CheckpointEntry
from vgpu_native.plugin.kubelet.kubelet_state import KubeletState, with_ids
from vgpu_native.plugin.kubelet.pod_resources import DeviceHolder
from vgpu_native.plugin.placement_source import PlacedContainer, PlacementSource
from vgpu_native.plugin.plugin_settings import PluginSettings

AGAIN_SECONDS: Final = 0.25
"""Longest pause between two reads of the kubelet's and the ledger's state."""

Pair = tuple[Allocation, PlacedContainer]


class PreStartHandler:
    """Assigns allocations to containers, by the state of the kubelet and the ledger."""

    def __init__(
        self,
        settings: PluginSettings,
        placements: PlacementSource,
        *,
        allocations: AllocationStore,
        kubelet: KubeletState,
    ) -> None:
        """Assign the allocations of this store."""
        self._settings = settings
        self._placements = placements
        self._allocations = allocations
        self._kubelet = kubelet

    async def verify(self, ids: Sequence[str]) -> None:
        """Assign the containers with these ids, so that they can start.

        Several containers of a pod can have the same ids. Each has its own allocation, so all of
        them are assigned, whichever starts. Raises RejectedCall, OSError.
        """
        for allocation, container in await self._pairs(ids):
            assign(self._allocations, allocation, container, self._settings)

    async def _pairs(self, ids: Sequence[str]) -> list[Pair]:
        """Return the containers with these ids; retry until the deadline. Raises RejectedCall."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._settings.verify_seconds
        while True:
            version = self._placements.version
            try:
                return await self._assigned(ids)
            except RejectedCall as error:
                if error.code != unavailable("").code or loop.time() >= deadline:
                    raise
            try:
                await asyncio.wait_for(self._placements.wait(version), AGAIN_SECONDS)
            except TimeoutError:
                continue

    async def _assigned(self, ids: Sequence[str]) -> list[Pair]:
        holders = await self._kubelet.holders() or ()
        entries = [entry for entry in with_ids(await self._kubelet.entries(), ids) if entry.token]
        if entries:
            pairs = [self._by_entry(entry) for entry in entries]
            self._agree(pairs, holders, ids)
            return pairs
        # Without the checkpoint, any common id identifies the pod: pods share no device ids.
        if holder := next((candidate for candidate in holders if candidate.ids & set(ids)), None):
            return self._by_holder(holder, ids)
        raise unavailable(
            f"devices_ids {shown_ids(sorted(ids))}: neither the checkpoint of the kubelet"
            f" ({self._settings.checkpoint}) nor its pod-resources API lists a container with"
            " them yet; the kubelet retries"
        )

    def _by_entry(self, entry: CheckpointEntry) -> Pair:
        container = self._kubelet.placed(entry.uid, entry.container)
        if container is None:
            raise unavailable(
                f"container {entry.container} of pod {entry.uid}: the ledger has no placement of it"
                " on this node; the container starts when the ledger has one"
            )
        return self._allocations.get(entry.token) or self._adopted(entry), container

    def _by_holder(self, holder: DeviceHolder, ids: Sequence[str]) -> list[Pair]:
        """Return the containers with these ids, of the pod of a holder.

        The API omits init containers. So allocations older than the newest keep their assumed
        owner if it belongs to this pod.
        """
        name = f"container {holder.container} of pod {holder.namespace}/{holder.pod}"
        container = self._kubelet.named(holder)
        if container is None:
            raise unavailable(
                f"{name}: the ledger has no placement of it on this node; the container starts when"
                " the ledger has one"
            )
        allocations = self._allocations.with_ids(ids)
        pairs = []
        if allocations and holder.ids == frozenset(ids):
            pairs.append((allocations.pop(0), container))
        for allocation in allocations:
            owner = self._kubelet.placed(*allocation.owner.key) if allocation.owner else None
            if owner is not None and owner.uid == container.uid:
                pairs.append((allocation, owner))
        if not pairs:
            raise failed_precondition(f"{name}: the plugin has no allocation of it; delete the pod")
        return pairs

    def _adopted(self, entry: CheckpointEntry) -> Allocation:
        """Restore an allocation whose record was lost, from the response in the checkpoint."""
        return self._allocations.restore(
            entry.token, entry.ids, entry.cards, limited=entry.limited, cdi=entry.cdi
        )

    def _agree(
        self, pairs: Sequence[Pair], holders: Sequence[DeviceHolder], ids: Sequence[str]
    ) -> None:
        """Raise RejectedCall if the pod-resources API names another pod than the checkpoint."""
        pods = {(container.namespace, container.pod) for _, container in pairs}
        for holder in holders:
            if holder.ids & set(ids) and (holder.namespace, holder.pod) not in pods:
                names = ", ".join("/".join(pod) for pod in sorted(pods))
                raise unavailable(
                    f"devices_ids {shown_ids(sorted(ids))}: the kubelet's pod-resources API lists"
                    f" {holder.namespace}/{holder.pod}, its checkpoint lists {names}; the kubelet"
                    " retries"
                )
