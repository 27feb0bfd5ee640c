"""Varied pods: together they set each field that the product reads, and many that it skips."""

from typing import Any, Final

from tests.e2e.harness.cluster import Cluster, Manifest
from tests.e2e.objects.pods import CARDS, CORES, MEMORY

_SELECTOR: Final = {"matchLabels": {"app": "a"}}
_ELSEWHERE: Final = {"topologyKey": "zone", "labelSelector": _SELECTOR}
_NEAR: Final = {**_ELSEWHERE, "namespaces": ["red", "blue"]}
_AWAY: Final = {**_ELSEWHERE, "namespaceSelector": {}}
_TERMS: Final = {
    "requiredDuringSchedulingIgnoredDuringExecution": [_NEAR, _AWAY, _ELSEWHERE],
    "preferredDuringSchedulingIgnoredDuringExecution": [
        {"weight": 7, "podAffinityTerm": _NEAR},
        {"weight": 1, "podAffinityTerm": _AWAY},
    ],
}
_AMOUNTS: Final = {CARDS: 2, MEMORY: "1500", CORES: "3e1", "cpu": "100m", "memory": "1Gi"}
_STATUSES: Final = [
    {"name": "runs", "started": True, "state": {"running": {"startedAt": "2026-01-02T03:04:05Z"}}},
    {"name": "failed", "started": False, "state": {"terminated": {"exitCode": 137, "signal": 9}}},
    {"name": "odd", "state": {"terminated": {"exitCode": -1, "reason": "Error"}}},
    {"name": "ended", "state": {"terminated": {"exitCode": 0}}},
    {"name": "waits", "state": {"waiting": {"reason": "ImagePullBackOff"}}, "restartCount": 3},
    {"name": "unknown"},
]
_CLAIMS: Final = [
    {"name": "own", "resourceClaimName": "shared"},
    {"name": "made", "resourceClaimTemplateName": "small"},
    {"name": "none", "resourceClaimTemplateName": "optional"},
]
_CLAIM_STATUSES: Final = [{"name": "made", "resourceClaimName": "bound-made-x1"}, {"name": "none"}]
_EXTENDED: Final = {
    "resourceClaimName": "bound-extended-resources-x1",
    "requestMappings": [
        {
            "containerName": "main",
            "resourceName": CARDS,
            "requestName": "container-0-request-0",
        }
    ],
}


async def make(cluster: Cluster, namespace: str) -> None:
    """Create the pods, change some, and end some."""
    await _make_named(cluster)
    pods = f"/api/v1/namespaces/{namespace}/pods"
    owners = [await _make_owner(cluster, namespace, name) for name in ("a", "b", "c")]
    owners[0]["controller"], owners[1]["controller"] = True, False
    for manifest in _manifests(owners):
        await cluster.must("POST", pods, manifest)
    debugger = {"name": "debug", "image": "i", "targetContainerName": "main", "stdin": True}
    await _patch(
        cluster, f"{pods}/plain/ephemeralcontainers", "spec", ephemeralContainers=[debugger]
    )
    await _patch(
        cluster, f"{pods}/plain", "metadata", annotations={"a": "ä \u2028 text\n" * 40, "e": ""}
    )
    for name in ("bound", "leaving"):
        binding = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name}}
        await cluster.must(
            "POST", f"{pods}/{name}/binding", {**binding, "target": {"name": "varied"}}
        )
    for phase in ("Running", "Succeeded"):
        status = {"phase": phase, "startTime": "2026-01-02T03:04:05Z", "qosClass": "Burstable"}
        lists = {"containerStatuses": _STATUSES, "initContainerStatuses": _STATUSES[:2]}
        claims = {
            "resourceClaimStatuses": _CLAIM_STATUSES,
            "extendedResourceClaimStatus": _EXTENDED,
        }
        await _patch(cluster, f"{pods}/bound/status", "status", **status, **lists, **claims)
    await cluster.must("DELETE", f"{pods}/leaving", {"gracePeriodSeconds": 3})
    await cluster.must("DELETE", f"{pods}/gone", {"gracePeriodSeconds": 0})


async def _make_named(cluster: Cluster) -> None:
    """Create the node and the classes that pods name, unless they exist."""
    node = {"apiVersion": "v1", "kind": "Node"}
    runtime = {"apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "handler": "h"}
    overhead = {"overhead": {"podFixed": {"cpu": "250m", "memory": "120Mi"}}}
    names = {"metadata": {"name": "varied"}}
    priority = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "value": -5}
    never = {"preemptionPolicy": "Never"}
    for path, body in (
        ("/api/v1/nodes", node | names),
        ("/apis/node.k8s.io/v1/runtimeclasses", runtime | overhead | names),
        ("/apis/scheduling.k8s.io/v1/priorityclasses", priority | never | names),
    ):
        answer = await cluster.ask("POST", path, body)
        assert answer.status in (201, 409), answer


async def _make_owner(cluster: Cluster, namespace: str, name: str) -> Manifest:
    """Create an object, so that pods with it as their owner are not removed, and refer to it."""
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}}
    made = await cluster.must("POST", f"/api/v1/namespaces/{namespace}/configmaps", body)
    reference = {"apiVersion": "v1", "kind": "ConfigMap", "name": name}
    return {**reference, "uid": made["metadata"]["uid"]}


async def _patch(cluster: Cluster, path: str, part: str, **values: Any) -> None:
    kind = {"Content-Type": "application/strategic-merge-patch+json"}
    await cluster.must("PATCH", path, {part: values}, headers=kind)


def _manifests(owners: list[Manifest]) -> list[Manifest]:
    worker = _container("main", resources={"limits": _AMOUNTS, "requests": {"cpu": "50m"}})
    sidecar = _container("proxy", restartPolicy="Always", resources={"requests": {"cpu": "1m"}})
    privileged = _container("root", securityContext={"privileged": True, "runAsUser": 0})
    confined = _container("user", securityContext={"privileged": False})
    plain = _container("main", securityContext={"runAsNonRoot": True})
    return [
        _pod("plain", plain),
        _pod(
            "bound",
            worker,
            metadata={"labels": {"a": "", "b": "x"}, "ownerReferences": owners},
            resourceClaims=_CLAIMS,
        ),
        _pod("", plain, metadata={"generateName": "made-"}),
        _pod("leaving", plain, metadata={"finalizers": ["example.org/stay"]}),
        _pod("gone", plain),
        _pod(
            "full",
            privileged,
            confined,
            initContainers=[sidecar, _container("init")],
            affinity={"podAffinity": _TERMS, "podAntiAffinity": _TERMS, "nodeAffinity": {}},
            activeDeadlineSeconds=3600,
            schedulerName="another",
            schedulingGates=[{"name": "example.org/a"}, {"name": "example.org/b"}],
            runtimeClassName="varied",
            priorityClassName="varied",
            resources={"requests": {"cpu": "2", "memory": "1G"}, "limits": {"memory": "2Gi"}},
        ),
        _pod(
            "bare",
            plain,
            affinity={"podAffinity": {}},
            preemptionPolicy="PreemptLowerPriority",
            volumes=[{"name": "v", "emptyDir": {"sizeLimit": "1Mi"}}],
            tolerations=[{"operator": "Exists"}],
        ),
    ]


def _container(name: str, **fields: Any) -> Manifest:
    return {"name": name, "image": "cuda:12", "env": [{"name": "A", "value": "ü"}], **fields}


def _pod(
    name: str, *containers: Manifest, metadata: Manifest | None = None, **spec: Any
) -> Manifest:
    named = {"name": name} if name else {}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {**named, **(metadata or {})},
        "spec": {"containers": list(containers), **spec},
    }
