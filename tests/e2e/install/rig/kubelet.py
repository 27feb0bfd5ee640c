"""The configuration of a node's kubelet."""

import json
from typing import Final

CONFIGURATION: Final = "/run/kubelet/config.json"
KUBECONFIG: Final = "/run/kubelet/kubeconfig"
SYSCTLS: Final = {
    "vm/overcommit_memory": "1",
    "vm/panic_on_oom": "0",
    "kernel/panic": "10",
    "kernel/panic_on_oops": "1",
    "kernel/keys/root_maxkeys": "1000000",
    "kernel/keys/root_maxbytes": "25000000",
}
"""The values that a kubelet wants of the kernel. A node has files of its own at these paths,
because the kernel's are those of the whole machine."""


def configuration(cgroup: str, socket: str, dns: str) -> str:
    """Return the configuration file of a kubelet that puts its pods below a cgroup."""
    settings = {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "authentication": {"anonymous": {"enabled": True}, "webhook": {"enabled": False}},
        "authorization": {"mode": "AlwaysAllow"},
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": f"/{cgroup}",
        "clusterDNS": [dns],
        "clusterDomain": "cluster.local",
        "containerRuntimeEndpoint": f"unix://{socket}",
        "enforceNodeAllocatable": [],
        "evictionHard": {"memory.available": "100Mi", "nodefs.available": "1%"},
        "failCgroupV1": False,
        "failSwapOn": False,
        "healthzPort": 0,
        "imageGCHighThresholdPercent": 100,
        "makeIPTablesUtilChains": False,
        "nodeStatusUpdateFrequency": "2s",
        "nodeLeaseDurationSeconds": 8,
        "podLogsDir": "/var/log/pods",
        "protectKernelDefaults": True,
        "readOnlyPort": 0,
        "resolvConf": "",
        "serverTLSBootstrap": False,
        "shutdownGracePeriod": "0s",
    }
    return json.dumps(settings, indent=2)
