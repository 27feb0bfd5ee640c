"""The witness: what the kubelet says of who has which devices, matched with who was placed here."""

import asyncio
from collections.abc import Iterable
from pathlib import Path
from typing import Final

import structlog

from vgpu_native.plugin.kubelet import kubelet_checkpoint, pod_resources
from vgpu_native.plugin.kubelet.kubelet_checkpoint import BadCheckpoint, CheckpointEntry
from vgpu_native.plugin.kubelet.pod_resources import DeviceHolder, KubeletSilent
from vgpu_native.plugin.placement_source import PlacedContainer, PlacementSource
from vgpu_native.plugin.plugin_settings import PluginSettings

READS_MAX: Final = 5
"""How often in a row a checkpoint is read that is written all the time."""

_log: Final = structlog.get_logger("vgpu_native.plugin")


class KubeletState:
    """Asks the kubelet, in both ways there are."""

    def __init__(self, settings: PluginSettings, placements: PlacementSource) -> None:
        """Ask the kubelet of these settings."""
        self._settings = settings
        self._placements = placements
        self._problems: dict[str, str] = {}

    async def entries(self) -> tuple[CheckpointEntry, ...] | None:
        """Return who is in the kubelet's checkpoint; None when that cannot be read.

        It is read beside the event loop, and again when the kubelet has written it meanwhile: what
        is returned was true when this returns.
        """
        path = self._settings.checkpoint
        for _ in range(READS_MAX):
            before = kubelet_checkpoint.version(path)
            found = await self._read(path)
            if kubelet_checkpoint.version(path) == before:
                break
        return found

    async def _read(self, path: Path) -> tuple[CheckpointEntry, ...] | None:
        try:
            return await asyncio.to_thread(kubelet_checkpoint.read, path, self._settings.resource)
        except BadCheckpoint as error:
            if self._is_new("checkpoint", str(error)):
                _log.warning("checkpoint_not_read", error=str(error))
            return None

    async def holders(self) -> tuple[DeviceHolder, ...] | None:
        """Return who is in the pod-resources API; None when that does not answer in time."""
        try:
            return await pod_resources.holders(
                self._settings.pod_resources, self._settings.resource
            )
        except KubeletSilent as error:
            if self._is_new("pod_resources", str(error)):
                _log.warning("pod_resources_not_listed", error=str(error))
            return None

    def placed(self, uid: str, name: str) -> PlacedContainer | None:
        """Return the container of a pod's uid."""
        found = (one for one in self._placements.containers() if one.key == (uid, name))
        return next(found, None)

    def named(self, holder: DeviceHolder) -> PlacedContainer | None:
        """Return the container that the pod-resources API means: of pods of a name, the newest."""
        found = (
            one
            for one in self._placements.containers()
            if (one.namespace, one.pod, one.name)
            == (holder.namespace, holder.pod, holder.container)
        )
        return max(found, key=lambda one: one.time, default=None)

    def _is_new(self, source: str, problem: str) -> bool:
        """Return whether this problem of a source differs from its last one, and store it."""
        last, self._problems[source] = self._problems.get(source), problem
        return last != problem


def with_ids(
    entries: Iterable[CheckpointEntry] | None, ids: Iterable[str]
) -> list[CheckpointEntry]:
    """Return the entries of exactly these ids."""
    wanted = frozenset(ids)
    return [one for one in entries or () if one.ids == wanted]
