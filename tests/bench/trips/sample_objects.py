"""Objects of one namespace as an API server stores them, and requests about them."""

from typing import Any, Final

import msgspec

Object = dict[str, Any]

NAMESPACE: Final = "team"
MEMORY: Final = "nvidia.com/gpumem"
CARDS: Final = "nvidia.com/gpu"
REPLICAS: Final = 5
REPLICATOR: Final = "system:serviceaccount:kube-system:replicaset-controller"
ADMIN: Final = "ada"
SCHEDULER: Final = "gpuledger-scheduler"

_CARD: Final = {CARDS: "1", MEMORY: "4k"}
_DEPLOYMENTS: Final = {"group": "apps", "version": "v1", "resource": "deployments"}
_PODS: Final = {"group": "", "version": "v1", "resource": "pods"}


def deployment() -> Object:
    """Return a Deployment of pods with a part of a card each."""
    return _workload("Deployment", "web", None)


def replica_set() -> Object:
    """Return the ReplicaSet of the Deployment."""
    return _workload("ReplicaSet", "web-1", deployment())


def pod(name: str, limits: dict[str, str] | None = None, *, version: int = 0) -> Object:
    """Return a pod of the ReplicaSet; it is not stored yet where it has no version."""
    meta = _metadata(name, replica_set())
    if version:
        meta["resourceVersion"] = str(version)
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": meta,
        "spec": _spec(_CARD if limits is None else limits),
        "status": {"phase": "Pending"},
    }


def deployment_review() -> bytes:
    """Return the AdmissionReview of the Deployment's creation."""
    return _review(_DEPLOYMENTS, deployment(), ADMIN)


def pod_review(new: Object) -> bytes:
    """Return the AdmissionReview of the creation of a pod by its ReplicaSet's controller."""
    return _review(_PODS, new, REPLICATOR)


def _workload(kind: str, name: str, owner: Object | None) -> Object:
    meta = _metadata(name, owner) | {"resourceVersion": "5", "generation": 1}
    template = {"metadata": {}, "spec": _spec(_CARD)}
    return {
        "apiVersion": "apps/v1",
        "kind": kind,
        "metadata": meta,
        "spec": {"replicas": REPLICAS, "template": template},
    }


def _metadata(name: str, owner: Object | None) -> Object:
    meta: Object = {"name": name, "namespace": NAMESPACE, "uid": f"uid-{name}"}
    if owner is not None:
        above = owner["metadata"]
        reference = {"name": above["name"], "uid": above["uid"], "controller": True}
        meta["ownerReferences"] = [
            {"apiVersion": owner["apiVersion"], "kind": owner["kind"], **reference}
        ]
    return meta


def _spec(limits: dict[str, str]) -> Object:
    containers = [{"name": "main", "resources": {"limits": limits}}]
    return {"schedulerName": SCHEDULER, "containers": containers}


def _review(resource: dict[str, str], new: Object, user: str) -> bytes:
    group, version = resource["group"], resource["version"]
    request = {
        "uid": "call-1",
        "kind": {"group": group, "version": version, "kind": new["kind"]},
        "resource": resource,
        "operation": "CREATE",
        "name": new["metadata"]["name"],
        "namespace": NAMESPACE,
        "userInfo": {"username": user, "groups": ["system:authenticated"]},
        "object": new,
        "oldObject": None,
        "dryRun": False,
    }
    kind = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview"}
    return msgspec.json.encode({**kind, "request": request})
