"""Kubelet state: the containers to which the kubelet gave devices, and their placements."""

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
"""Maximum reads of a checkpoint that changes during each read."""

_log: Final = structlog.get_logger("vgpu_native.plugin")


class KubeletState:
    """Reads the kubelet's checkpoint and its pod-resources API."""

    def __init__(self, settings: PluginSettings, placements: PlacementSource) -> None:
        """Read the kubelet of these settings."""
        self._settings = settings
        self._placements = placements
        self._problems: dict[str, str] = {}

    async def entries(self) -> tuple[CheckpointEntry, ...] | None:
        """Return the entries of the kubelet's checkpoint; None if it cannot be read.

        A thread reads the file, and repeats the read if the kubelet wrote the file meanwhile. So
        the entries are current at the return.
        """
        path = self._settings.checkpoint
        for _ in range(READS_MAX):
            before = kubelet_checkpoint.version(path)
            current = await self._read(path)
            if kubelet_checkpoint.version(path) == before:
                break
        return current

    async def _read(self, path: Path) -> tuple[CheckpointEntry, ...] | None:
        try:
            return await asyncio.to_thread(kubelet_checkpoint.read, path, self._settings.resource)
        except BadCheckpoint as error:
            if self._is_new("checkpoint", str(error)):
                _log.warning("checkpoint_not_read", error=str(error))
            return None

    async def holders(self) -> tuple[DeviceHolder, ...] | None:
        """Return the holders in the pod-resources API; None if it does not respond in time."""
        try:
            return await pod_resources.holders(
                self._settings.pod_resources, self._settings.resource
            )
        except KubeletSilent as error:
            if self._is_new("pod_resources", str(error)):
                _log.warning("pod_resources_not_listed", error=str(error))
            return None

    def placed(self, uid: str, name: str) -> PlacedContainer | None:
        """Return the placed container of this pod uid and name; None if there is none."""
        containers = (
            container for container in self._placements.containers() if container.key == (uid, name)
        )
        return next(containers, None)

    def named(self, holder: DeviceHolder) -> PlacedContainer | None:
        """Return the placed container of a holder: of pods with one name, that of the newest."""
        containers = (
            container
            for container in self._placements.containers()
            if (container.namespace, container.pod, container.name)
            == (holder.namespace, holder.pod, holder.container)
        )
        return max(containers, key=lambda container: container.time, default=None)

    def _is_new(self, source: str, problem: str) -> bool:
        """Return whether this problem of a source differs from its last one, and store it."""
        last, self._problems[source] = self._problems.get(source), problem
        return last != problem


def with_ids(
    entries: Iterable[CheckpointEntry] | None, ids: Iterable[str]
) -> list[CheckpointEntry]:
    """Return the entries of exactly these ids."""
    wanted = frozenset(ids)
    return [entry for entry in entries or () if entry.ids == wanted]
