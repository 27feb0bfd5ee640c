"""The programs and rights that a rig needs, and the reason where something is missing."""

import os
import shutil
from pathlib import Path
from typing import Final, NamedTuple

CONTROL_PLANE_VARIABLE: Final = "KUBEBUILDER_ASSETS"
NODE_VARIABLE: Final = "GPULEDGER_NODE_ASSETS"
RIG_VARIABLE: Final = "GPULEDGER_TEST_RIG"
"""The name of the rig, set only inside its namespaces. Cgroups and the folder have this name."""

_CONTROL_PLANE: Final = (
    "etcd",
    "kube-apiserver",
    "kube-controller-manager",
    "kube-scheduler",
    "kubectl",
)
_NODE: Final = ("kubelet", "containerd", "containerd-shim-runc-v2", "runc", "ctr", "busybox", "cni")
_TOOLS: Final = {
    "ip": "iproute2",
    "nft": "nftables",
    "dnsmasq": "dnsmasq-base",
    "unshare": "util-linux",
    "nsenter": "util-linux",
    "sysctl": "procps",
    "buildah": "buildah",
    "mmdebstrap": "mmdebstrap",
}
"""Programs, and the Debian packages that have them."""

# Read at import, because the tests remove these variables before they start anything.
_ENVIRONMENT: Final = {
    name: os.environ.get(name, "") for name in (CONTROL_PLANE_VARIABLE, NODE_VARIABLE, RIG_VARIABLE)
}


class RigAssets(NamedTuple):
    """The folders with the programs of the control plane and of nodes."""

    control_plane: Path
    node: Path


def rig_name() -> str:
    """Return the name of the rig that this process is in, or an empty string."""
    return _ENVIRONMENT[RIG_VARIABLE]


def missing() -> str:
    """Return the reason why no rig can be made, with the remedy; empty where one can be made."""
    if os.geteuid() != 0:
        return "not root: run `make e2e-install` as root, because nodes need namespaces and cgroups"
    for variable, page in ((CONTROL_PLANE_VARIABLE, "e2e"), (NODE_VARIABLE, "e2e/install")):
        if not _ENVIRONMENT[variable]:
            return f"{variable} is not set: tests/{page}/README.md describes the folder it names"
    absent = sorted(tool for tool in _TOOLS if shutil.which(tool) is None)
    if absent:
        packages = " ".join(sorted({_TOOLS[tool] for tool in absent}))
        return f"no {', '.join(absent)} on the path: apt-get install {packages}"
    return ""


def rig_assets() -> RigAssets:
    """Return the folders of programs. Raises FileNotFoundError where they lack a program."""
    folders = [Path(_ENVIRONMENT[name]) for name in (CONTROL_PLANE_VARIABLE, NODE_VARIABLE)]
    wanted = (_CONTROL_PLANE, _NODE)
    for variable, folder, programs in zip(
        (CONTROL_PLANE_VARIABLE, NODE_VARIABLE), folders, wanted, strict=True
    ):
        if absent := [program for program in programs if not (folder / program).exists()]:
            raise FileNotFoundError(f"{variable}={folder} lacks {', '.join(absent)}")
    return RigAssets(*folders)
