"""What the plugin can be told."""

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
    """Where allocations are kept, with what is mounted into containers."""
    library: Path = Path("/usr/local/gpuledger/libvgpu.so")

    cdi: bool = False
    """Answer with the name of a CDI device in place of environment and mounts."""
    cdi_dir: Path = Path("/var/run/cdi")
    limit_whole_cards: bool = False
    """Put containers under limits, too, that have all their cards for themselves."""
    numa: bool = False
    """Tell the kubelet to which NUMA node each card belongs."""
    oversubscribe: bool = False
    """Cards are promised beyond what they have: give memory as managed memory."""
    may_disable: bool = False
    """A container's own environment may switch its limits off."""
    cores_off: bool = False
    """Do not limit the time of cards."""
    log_level: int = 1
    """`LIBCUDA_LOG_LEVEL` of containers."""

    allocate_seconds: float = 5.0
    """How long `Allocate` waits for a placement that the ledger does not have."""
    outage_seconds: float = 25.0
    """How long in a row `Allocate` waits for a ledger that is out of reach.

    A kubelet sets no deadline, but acts on no pod meanwhile; one that may set a deadline in times
    to come would choose 30 s.
    """
    verify_seconds: float = 10.0
    """How long `PreStartContainer` waits for kubelet and ledger; the kubelet gives it 30 s."""
    look_seconds: float = 1.0
    """How often the kubelet's sockets are looked at."""

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
        """Return the path of the file in which the kubelet notes who has which devices."""
        return self.plugins_dir / "kubelet_internal_checkpoint"

    @property
    def preload(self) -> Path:
        """Return the path of what containers see as `/etc/ld.so.preload`."""
        return self.state_dir / "ld.so.preload"
