"""Answering: what a container needs to use its cards within its limits. Pure."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from ledger.core.model.cards import Share
from vgpu_native.plugin.allocate_response_names import LIMITS_AT, MARK, VISIBLE
from vgpu_native.plugin.kubelet.generated.deviceplugin_pb2 import (
    CDIDevice,
    ContainerAllocateResponse,
    Mount,
)
from vgpu_native.plugin.plugin_settings import PluginSettings

KIND: Final = "gpuledger.io/gpu"
"""Vendor and class of our CDI devices."""

REGION_AT: Final = "/run/gpuledger"
PRELOAD_AT: Final = "/etc/ld.so.preload"


class HostMount(NamedTuple):
    """A path of the host, and where the container sees it."""

    host: str
    container: str
    read_only: bool


def environment(
    cards: Sequence[str], shares: Sequence[Share], settings: PluginSettings, *, limited: bool
) -> dict[str, str]:
    """Return the variables of a container that sees these cards, in this order.

    Its amounts are told for programs that look; what holds is on the limits page. Without `shares`
    they are not known yet.
    """
    found = {VISIBLE: ",".join(cards)}
    if not limited:
        return found
    found["CUDA_DEVICE_MEMORY_SHARED_CACHE"] = f"{REGION_AT}/region"
    found["LIBCUDA_LOG_LEVEL"] = str(settings.log_level)
    if settings.oversubscribe:
        found["CUDA_OVERSUBSCRIBE"] = "true"
    if settings.cores_off:
        found["GPU_CORE_UTILIZATION_POLICY"] = "disable"
    return found | _amounts(cards, {share.uuid: share for share in shares})


def mounts(page: Path, region: Path, settings: PluginSettings, *, limited: bool) -> list[HostMount]:
    """Return what is mounted into a container with this limits page and this region."""
    if not limited:
        return []
    library = str(settings.library)
    return [
        HostMount(library, library, True),
        HostMount(str(settings.preload), PRELOAD_AT, True),
        HostMount(str(page), LIMITS_AT, True),
        HostMount(str(region), REGION_AT, False),
    ]


def plain_answer(
    token: str, variables: Mapping[str, str], mounted: Sequence[HostMount]
) -> ContainerAllocateResponse:
    """Return an answer of variables and mounts, with its mark."""
    return ContainerAllocateResponse(
        envs=dict(variables),
        mounts=[
            Mount(host_path=one.host, container_path=one.container, read_only=one.read_only)
            for one in mounted
        ],
        annotations={MARK: token},
    )


def cdi_answer(token: str) -> ContainerAllocateResponse:
    """Return an answer that names a CDI device, which is described before the start."""
    return ContainerAllocateResponse(
        cdi_devices=[CDIDevice(name=f"{KIND}={token}")], annotations={MARK: token}
    )


def _amounts(cards: Sequence[str], shares: Mapping[str, Share]) -> dict[str, str]:
    found = {}
    for index, uuid in enumerate(cards):
        if share := shares.get(uuid):
            # As with HAMi, 0 says that there is no limit.
            found[f"CUDA_DEVICE_MEMORY_LIMIT_{index}"] = f"{share.memory}m"
            if index == 0 and share.cores:
                found["CUDA_DEVICE_SM_LIMIT"] = str(share.cores)
    return found
