"""Container environment: the variables and mounts by which a container uses its cards. Pure.

The response to `Allocate` has them or, with the setting `cdi`, the CDI specification.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from ledger.core.model.cards import Share
from vgpu_native.plugin.kubelet.generated.deviceplugin_pb2 import (
    CDIDevice,
    ContainerAllocateResponse,
    Mount,
)
from vgpu_native.plugin.kubelet.kubelet_checkpoint import LIMITS_AT, MARK, VISIBLE
from vgpu_native.plugin.plugin_settings import PluginSettings

KIND: Final = "gpuledger.io/gpu"
"""Vendor and class of our CDI devices."""

REGION_AT: Final = "/run/gpuledger"
PRELOAD_AT: Final = "/etc/ld.so.preload"


class HostMount(NamedTuple):
    """A path on the host and its path in the container."""

    host: str
    container: str
    read_only: bool


def environment(
    cards: Sequence[str], shares: Sequence[Share], settings: PluginSettings, *, limited: bool
) -> dict[str, str]:
    """Return the variables of a container that sees these cards, in this order.

    The variables of amounts are for information; the library enforces the limits page. `shares` is
    empty while the amounts are not known.
    """
    variables = {VISIBLE: ",".join(cards)}
    if not limited:
        return variables
    variables["CUDA_DEVICE_MEMORY_SHARED_CACHE"] = f"{REGION_AT}/region"
    variables["LIBCUDA_LOG_LEVEL"] = str(settings.log_level)
    if settings.oversubscribe:
        variables["CUDA_OVERSUBSCRIBE"] = "true"
    if settings.cores_off:
        variables["GPU_CORE_UTILIZATION_POLICY"] = "disable"
    return variables | _amounts(cards, {share.uuid: share for share in shares})


def mounts(page: Path, region: Path, settings: PluginSettings, *, limited: bool) -> list[HostMount]:
    """Return the mounts of a container with this limits page and this region."""
    if not limited:
        return []
    library = str(settings.library)
    return [
        HostMount(library, library, True),
        HostMount(str(settings.preload), PRELOAD_AT, True),
        HostMount(str(page), LIMITS_AT, True),
        HostMount(str(region), REGION_AT, False),
    ]


def plain_response(
    token: str, variables: Mapping[str, str], mounted: Sequence[HostMount]
) -> ContainerAllocateResponse:
    """Return a response with variables, mounts and the allocation's mark."""
    return ContainerAllocateResponse(
        envs=dict(variables),
        mounts=[
            Mount(host_path=mount.host, container_path=mount.container, read_only=mount.read_only)
            for mount in mounted
        ],
        annotations={MARK: token},
    )


def cdi_response(token: str) -> ContainerAllocateResponse:
    """Return a response that names a CDI device; the start needs its specification."""
    return ContainerAllocateResponse(
        cdi_devices=[CDIDevice(name=f"{KIND}={token}")], annotations={MARK: token}
    )


def _amounts(cards: Sequence[str], shares: Mapping[str, Share]) -> dict[str, str]:
    variables = {}
    for index, uuid in enumerate(cards):
        if share := shares.get(uuid):
            # 0 means no limit, as with HAMi.
            variables[f"CUDA_DEVICE_MEMORY_LIMIT_{index}"] = f"{share.memory}m"
            if index == 0 and share.cores:
                variables["CUDA_DEVICE_SM_LIMIT"] = str(share.cores)
    return variables
