"""Plugin settings: paths, switches, and how long the calls of the kubelet wait."""

from pathlib import Path

import msgspec


class PluginSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Paths are the same for the plugin and on the host; durations are seconds."""

    resource: str = "nvidia.com/gpu"
    """The name under which the kubelet counts the slots of cards."""
    plugins_dir: Path = Path("/var/lib/kubelet/device-plugins")
    pod_resources: Path = Path("/var/lib/kubelet/pod-resources/kubelet.sock")
    endpoint: str = "gpuledger.sock"
    """The name of the plugin's socket in `plugins_dir`."""
    state_dir: Path = Path("/var/lib/gpuledger")
    """The directory of allocations and of the files that containers mount."""
    library: Path = Path("/usr/local/gpuledger/libvgpu.so")

    cdi: bool = False
    """Respond with the name of a CDI device instead of environment and mounts."""
    cdi_dir: Path = Path("/var/run/cdi")
    limit_whole_cards: bool = False
    """Also limit containers that share none of their cards."""
    numa: bool = False
    """Advertise the NUMA node of each card."""
    oversubscribe: bool = False
    """Overcommit card memory: allocate it as managed memory."""
    may_disable: bool = False
    """A container's own environment may switch its limits off."""
    cores_off: bool = False
    """Do not limit the time of cards."""
    overhead: bool = True
    """Count the memory of contexts and code."""
    log_level: int = 1
    """`LIBCUDA_LOG_LEVEL` of containers."""

    allocate_seconds: float = 5.0
    """How long `Allocate` waits for a placement that is missing from the ledger."""
    outage_seconds: float = 25.0
    """How long consecutive calls of `Allocate` wait together for a ledger that is out of reach.

    The kubelet sets no deadline, but handles no pod during the call. The bound is below 30 s, the
    deadline of the kubelet's other call.
    """
    verify_seconds: float = 10.0
    """How long `PreStartContainer` waits for kubelet and ledger; the kubelet gives it 30 s."""
    look_seconds: float = 0.2
    """How often the plugin checks the kubelet's sockets."""

    @property
    def socket(self) -> Path:
        """Return the path of the plugin's socket."""
        return self.plugins_dir / self.endpoint

    @property
    def kubelet_socket(self) -> Path:
        """Return the path of the socket on which the kubelet registers plugins."""
        return self.plugins_dir / "kubelet.sock"

    @property
    def checkpoint(self) -> Path:
        """Return the path of the file in which the kubelet stores the devices of containers."""
        return self.plugins_dir / "kubelet_internal_checkpoint"

    @property
    def preload(self) -> Path:
        """Return the path of the file that containers see as `/etc/ld.so.preload`."""
        return self.state_dir / "ld.so.preload"
