"""Verifying: whose devices they are that a container starts with, before it starts."""

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
"""How long to wait before kubelet and ledger are looked at again."""

Pair = tuple[Allocation, PlacedContainer]


class PreStartHandler:
    """Ties allocations to containers, by what the kubelet says and the ledger knows."""

    def __init__(
        self,
        settings: PluginSettings,
        placements: PlacementSource,
        *,
        allocations: AllocationStore,
        kubelet: KubeletState,
    ) -> None:
        """Verify what is in allocations."""
        self._settings = settings
        self._placements = placements
        self._allocations = allocations
        self._kubelet = kubelet

    async def verify(self, ids: Sequence[str]) -> None:
        """Let a container with these ids start. Raises Refused, OSError.

        Of several containers of one pod that have the same ids, all are tied: each has an
        allocation of its own, and which of them starts makes no difference.
        """
        for allocation, container in await self._pairs(ids):
            assign(self._allocations, allocation, container, self._settings)

    async def _pairs(self, ids: Sequence[str]) -> list[Pair]:
        """Find who has these ids, for as long as there is time. Raises Refused."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._settings.verify_seconds
        while True:
            version = self._placements.version
            try:
                return await self._found(ids)
            except RejectedCall as error:
                if error.code != unavailable("").code or loop.time() >= deadline:
                    raise
            try:
                await asyncio.wait_for(self._placements.wait(version), AGAIN_SECONDS)
            except TimeoutError:
                continue

    async def _found(self, ids: Sequence[str]) -> list[Pair]:
        holders = await self._kubelet.holders() or ()
        entries = [one for one in with_ids(await self._kubelet.entries(), ids) if one.token]
        if entries:
            pairs = [self._by_entry(entry) for entry in entries]
            self._agree(pairs, holders, ids)
            return pairs
        # Without the checkpoint; no two pods have a device in common.
        if holder := next((one for one in holders if one.ids & set(ids)), None):
            return self._by_holder(holder, ids)
        raise unavailable(
            f"devices_ids {shown_ids(sorted(ids))}: neither the checkpoint of the kubelet"
            f" ({self._settings.checkpoint}) nor its pod-resources API says yet which container"
            " has them; it asks again"
        )

    def _by_entry(self, entry: CheckpointEntry) -> Pair:
        container = self._kubelet.placed(entry.uid, entry.container)
        if container is None:
            raise unavailable(
                f"container {entry.container} of pod {entry.uid}: the ledger has no placement of it"
                " on this node; it starts when the placement is known"
            )
        return self._allocations.get(entry.token) or self._adopted(entry), container

    def _by_holder(self, holder: DeviceHolder, ids: Sequence[str]) -> list[Pair]:
        """Return who has these ids, of the pod of a holder.

        Init containers are not listed: what was answered before the last answer is believed to be
        for those it was meant for, if they are of this pod.
        """
        who = f"container {holder.container} of pod {holder.namespace}/{holder.pod}"
        container = self._kubelet.named(holder)
        if container is None:
            raise unavailable(
                f"{who}: the ledger has no placement of it on this node; it starts when the"
                " placement is known"
            )
        found = self._allocations.with_ids(ids)
        pairs = []
        if found and holder.ids == frozenset(ids):
            pairs.append((found.pop(0), container))
        for one in found:
            meant = self._kubelet.placed(*one.owner.key) if one.owner else None
            if meant is not None and meant.uid == container.uid:
                pairs.append((one, meant))
        if not pairs:
            raise failed_precondition(
                f"{who}: nothing is known of what it was answered; delete the pod"
            )
        return pairs

    def _adopted(self, entry: CheckpointEntry) -> Allocation:
        """Make an allocation again whose record was lost: the checkpoint has our answer."""
        return self._allocations.restore(
            entry.token, entry.ids, entry.cards, limited=entry.limited, cdi=entry.cdi
        )

    def _agree(
        self, pairs: Sequence[Pair], holders: Sequence[DeviceHolder], ids: Sequence[str]
    ) -> None:
        """Raise Refused when the pod-resources API names another pod than the checkpoint."""
        pods = {(container.namespace, container.pod) for _, container in pairs}
        for holder in holders:
            if holder.ids & set(ids) and (holder.namespace, holder.pod) not in pods:
                told = ", ".join("/".join(pod) for pod in sorted(pods))
                raise unavailable(
                    f"devices_ids {shown_ids(sorted(ids))}: the kubelet's pod-resources API says"
                    f" that {holder.namespace}/{holder.pod} has them, its checkpoint says {told};"
                    " it asks again"
                )
