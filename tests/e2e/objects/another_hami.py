"""A HAMi as its chart installs it under another release name, and a tenant who copies it."""

import json
from collections.abc import Mapping
from typing import Final

from tests.e2e.harness.authorization import are_applied, grant_all_in
from tests.e2e.harness.cluster import Cluster, Manifest
from tests.e2e.scheduling.support.nodes import LOCK, NODES

NAMESPACE: Final = "gpu-tools"
RELEASE: Final = "vgpu"
SCHEDULER: Final = f"system:serviceaccount:{NAMESPACE}:{RELEASE}-hami-scheduler"
PLUGIN: Final = f"system:serviceaccount:{NAMESPACE}:{RELEASE}-hami-device-plugin"
SCHEDULER_NAME: Final = "gpu-tools-scheduler"
COPIES: Final = 5
NODE: Final = "n-hami"
CARD: Final = f"GPU-{NODE}-0"
MEMORY: Final = 4_000
"""The request of the placed pod, MiB."""

_CARDS: Final = json.dumps(
    [
        {
            "id": CARD,
            "index": 0,
            "count": 10,
            "devmem": 24_576,
            "devcore": 100,
            "type": "NVIDIA A10",
            "health": True,
        }
    ]
)

_RBAC: Final = "rbac.authorization.k8s.io"
_RULES: Final[dict[str, list[Manifest]]] = {
    "scheduler": [
        {"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list", "patch", "update"]},
        {"apiGroups": [""], "resources": ["pods/binding"], "verbs": ["create"]},
        {"apiGroups": [""], "resources": ["nodes"], "verbs": ["get", "list", "patch", "update"]},
    ],
    "device-plugin": [
        {"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list", "patch"]},
        {"apiGroups": [""], "resources": ["nodes"], "verbs": ["get", "list", "patch"]},
    ],
}
_WORKLOADS: Final = {"scheduler": "Deployment", "device-plugin": "DaemonSet"}


async def install(cluster: Cluster) -> None:
    """Install HAMi with its accounts, rights and workloads."""
    await _named(cluster, "/api/v1/namespaces", "v1", "Namespace", NAMESPACE)
    for component, rules in _RULES.items():
        name = f"{RELEASE}-hami-{component}"
        accounts = f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts"
        await _named(cluster, accounts, "v1", "ServiceAccount", name)
        await _named(
            cluster,
            f"/apis/{_RBAC}/v1/clusterroles",
            f"{_RBAC}/v1",
            "ClusterRole",
            name,
            rules=rules,
        )
        subject = {"kind": "ServiceAccount", "name": name, "namespace": NAMESPACE}
        await _named(
            cluster,
            f"/apis/{_RBAC}/v1/clusterrolebindings",
            f"{_RBAC}/v1",
            "ClusterRoleBinding",
            name,
            roleRef={"apiGroup": _RBAC, "kind": "ClusterRole", "name": name},
            subjects=[subject],
        )
        await are_applied(cluster, f"system:serviceaccount:{NAMESPACE}:{name}", rules)
        await run(cluster, NAMESPACE, _WORKLOADS[component], component, name)


async def place(cluster: Cluster, pod: str) -> None:
    """Place a pod, given by its path, on a card as HAMi's two accounts do, one write at a time."""
    scheduler, plugin = cluster.as_user(SCHEDULER), cluster.as_user(PLUGIN)
    node = f"{NODES}/{NODE}"
    await cluster.must("POST", NODES, {"kind": "Node", "metadata": {"name": NODE}})
    given = f"{CARD},NVIDIA,{MEMORY},10:;"
    to_allocate, time = "hami.io/vgpu-devices-to-allocate", "2026-01-31T12:00:00Z"
    chosen = {
        "hami.io/vgpu-node": NODE,
        "hami.io/vgpu-time": "1769860800",
        "hami.io/vgpu-devices-allocated": given,
        to_allocate: given,
    }
    bound = {"hami.io/bind-phase": "allocating", "hami.io/bind-time": "1769860800"}
    done = {"hami.io/bind-phase": "success", to_allocate: ";"}
    *_, space, _, named = pod.split("/")
    binding = {
        "metadata": {"name": named},
        "target": {"kind": "Node", "name": NODE},
    }
    await _annotate(plugin, node, {"hami.io/node-nvidia-register": _CARDS})
    await _annotate(scheduler, pod, chosen, {"hami.io/vgpu-node": NODE})
    await _annotate(scheduler, node, {LOCK: f"{time},{space},{named}"})
    await _annotate(scheduler, pod, bound)
    await scheduler.must("POST", f"{pod}/binding", binding)
    await _annotate(plugin, pod, done)
    await _annotate(plugin, node, {LOCK: None})


async def _annotate(
    user: Cluster,
    path: str,
    annotations: Mapping[str, str | None],
    labels: Mapping[str, str] | None = None,
) -> None:
    change = {"metadata": {"annotations": annotations, "labels": labels or {}}}
    answer = await user.patch(path, change)
    assert answer.status == 200, answer


async def copy(cluster: Cluster, namespace: str) -> list[str]:
    """Copy HAMi into a tenant's namespace, as accounts that may do everything there.

    Returns their user names.
    """
    names = [f"hami-{number}" for number in range(COPIES)]
    for name in names:
        await run(cluster, namespace, "Deployment", "scheduler", name)
    users = [f"system:serviceaccount:{namespace}:{name}" for name in names]
    await grant_all_in(cluster, namespace, *users)
    return users


async def run(cluster: Cluster, namespace: str, kind: str, component: str, account: str) -> None:
    """Create a workload with the labels and image of one of HAMi's, as an account."""
    labels = {
        "app.kubernetes.io/component": f"hami-{component}",
        "app.kubernetes.io/name": "hami",
        "app.kubernetes.io/instance": RELEASE,
    }
    container = {
        "name": component,
        "image": "docker.io/projecthami/hami:v2.10.0",
        "command": [
            "run",
            *([f"--scheduler-name={SCHEDULER_NAME}"] if kind == "Deployment" else []),
        ],
    }
    spec = {"serviceAccountName": account, "containers": [container]}
    await _named(
        cluster,
        f"/apis/apps/v1/namespaces/{namespace}/{kind.lower()}s",
        "apps/v1",
        kind,
        account,
        spec={
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": spec},
        },
    )


async def _named(
    cluster: Cluster, path: str, version: str, kind: str, name: str, **fields: object
) -> None:
    metadata = {"name": name}
    await cluster.must(
        "POST", path, {"apiVersion": version, "kind": kind, "metadata": metadata, **fields}
    )
