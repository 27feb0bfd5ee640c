"""The configuration of a node's containerd and of its pods' network."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Final

SOCKET: Final = "/run/containerd/containerd.sock"
CONFIGURATION: Final = "/run/containerd/config.toml"
NETWORKS: Final = "/run/cni"
DEVICES: Final = ("/run/cdi", "/etc/cdi")

_TEMPLATE: Final = """version = 3
root = "/var/lib/containerd"
state = "/run/containerd"

[grpc]
address = "{socket}"

[ttrpc]
address = "{socket}.ttrpc"

[plugins.'io.containerd.cri.v1.images'.pinned_images]
sandbox = "{sandbox}"

[plugins.'io.containerd.cri.v1.runtime']
# Without CAP_SYS_RESOURCE runc cannot lower a score.
restrict_oom_score_adj = true
enable_cdi = true
cdi_spec_dirs = {devices}

[plugins.'io.containerd.cri.v1.runtime'.cni]
bin_dirs = ["{plugins}"]
conf_dir = "{networks}"
"""

_RUNTIME: Final = """
[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.{name}]
runtime_type = "io.containerd.runc.v2"

[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.{name}.options]
BinaryName = "{program}"
SystemdCgroup = false
"""


def configuration(assets: Path, sandbox: str, runtimes: Mapping[str, Path]) -> str:
    """Return the configuration file; `sandbox` is the image of pod sandboxes.

    `runtimes` are the programs of further runtimes, which follow runc's command line.
    """
    programs = {"runc": assets / "runc", **runtimes}
    handlers = [_RUNTIME.format(name=name, program=programs[name]) for name in programs]
    return "".join([_common(assets, sandbox), *handlers])


def _common(assets: Path, sandbox: str) -> str:
    return _TEMPLATE.format(
        socket=SOCKET,
        sandbox=sandbox,
        devices=json.dumps(DEVICES),
        plugins=assets / "cni",
        networks=NETWORKS,
    )


def network(subnet: str) -> str:
    """Return the network of a node's pods: a bridge, and addresses of the subnet."""
    plugins = [
        {
            "type": "bridge",
            "bridge": "pods",
            "isGateway": True,
            "hairpinMode": True,
            "ipMasq": False,
            "ipam": {
                "type": "host-local",
                "ranges": [[{"subnet": subnet}]],
                "routes": [{"dst": "0.0.0.0/0"}],
                "dataDir": "/run/cni/addresses",
            },
        }
    ]
    return json.dumps({"cniVersion": "1.0.0", "name": "pods", "plugins": plugins}, indent=2)
