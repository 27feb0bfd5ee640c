"""The network of a rig: one bridge between the control plane and the nodes, inside its namespace.

The control plane is at 10.250.0.1, node N at 10.250.0.(10+N), its pods at 10.244.N.0/24, and
Services at 10.96.0.0/16. Each node has a network namespace of its own, of its name.
"""

import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Final

ADDRESS: Final = "10.250.0.1"
"""The address of the control plane and of cluster DNS, which have no node."""

SERVICES: Final = "10.96.0.0/16"
API_SERVER: Final = "10.96.0.1"
"""The Service of the API server."""

CLUSTER_DNS: Final = ADDRESS
NAMESPACES: Final = Path("/run/netns")
COMMAND_SECONDS: Final = 10.0
_BRIDGE: Final = "rig"


def node_address(index: int) -> str:
    """Return the address of a node."""
    return f"10.250.0.{10 + index}"


def pod_subnet(index: int) -> str:
    """Return the addresses of a node's pods."""
    return f"10.244.{index}.0/24"


def namespace(node: str) -> Path:
    """Return the file that names a node's network namespace."""
    return NAMESPACES / node


def make_bridge() -> None:
    """Make the bridge in the namespace of this process, with a way to the Service addresses."""
    _forward(())
    _run(f"ip link add {_BRIDGE} type bridge")
    _run(f"ip address add {ADDRESS}/24 dev {_BRIDGE}")
    _run(f"ip link set {_BRIDGE} up")
    _run(f"ip route add {SERVICES} dev {_BRIDGE}")


def remove_bridge() -> None:
    """Remove the bridge, where there is one."""
    if _attempt(f"ip link show {_BRIDGE}").returncode == 0:
        _run(f"ip link delete {_BRIDGE}")


def dns_server(hosts: Path) -> list[str]:
    """Return the command of a DNS server for the names in the files of a folder."""
    options = (
        "--keep-in-foreground",
        "--conf-file=/dev/null",
        "--pid-file=",
        "--user=root",
        "--no-resolv",
        "--no-hosts",
        "--bind-interfaces",
        f"--listen-address={CLUSTER_DNS}",
        "--local=/cluster.local/",
        f"--hostsdir={hosts}",
        "--log-facility=-",
    )
    return [shutil.which("dnsmasq") or "dnsmasq", *options]


def connect_node(node: str, index: int) -> None:
    """Make the namespace of a node and connect it."""
    address = node_address(index)
    inside = ["nsenter", f"--net={namespace(node)}"]
    _run(f"ip netns add {node}")
    _run(f"ip link add name node-{node} type veth peer name eth0 netns {node}")
    _run(f"ip link set node-{node} master {_BRIDGE} up")
    for command in (
        "ip link set lo up",
        f"ip address add {address}/24 dev eth0",
        "ip link set eth0 up",
        f"ip route add default via {ADDRESS}",
    ):
        _run(command, inside)
    _forward(inside)
    _run(f"ip route replace {pod_subnet(index)} via {address}")


def disconnect_node(node: str) -> None:
    """Remove what connects a node, as if its cable were pulled; its namespace goes, too."""
    _run(f"ip link delete node-{node}")
    _run(f"ip netns delete {node}")


def _forward(inside: Sequence[str]) -> None:
    # Frames between two pods of a bridge pass the packet filter, so that answers of a Service do.
    for name in ("net.ipv4.ip_forward", "net.bridge.bridge-nf-call-iptables"):
        _run(f"sysctl -q -w {name}=1", inside)


def _run(command: str, inside: Sequence[str] = ()) -> None:
    done = _attempt(command, inside)
    assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"


def _attempt(command: str, inside: Sequence[str] = ()) -> subprocess.CompletedProcess[str]:
    words = [*inside, *command.split()]
    return subprocess.run(
        words, capture_output=True, text=True, timeout=COMMAND_SECONDS, check=False
    )
