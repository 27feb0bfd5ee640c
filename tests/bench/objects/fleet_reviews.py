"""Fleet reviews: the reviews of the API server about the Deployments and pods of a fleet."""

from typing import Any, Final

import msgspec

from tests.bench.objects.fleet import VERSION, Fleet
from webhook.api.admission_review import API_VERSION, KIND, AdmissionRequest, decode

ADMIN: Final = "admin"
REPLICATOR: Final = "system:serviceaccount:kube-system:replicaset-controller"

DEPLOYMENTS: Final = ("apps", "v1", "Deployment", "deployments")
PODS: Final = ("", "v1", "Pod", "pods")
SCALES: Final = ("autoscaling", "v1", "Scale", "deployments")

Type = tuple[str, str, str, str]
"""Group, version, kind, resource."""


def deployment_created(fleet: Fleet, root: int) -> AdmissionRequest:
    """Return the review of a new Deployment."""
    return _created(DEPLOYMENTS, fleet, root, fleet.deployment(root), ADMIN)


def pod_created(fleet: Fleet, root: int, number: int) -> AdmissionRequest:
    """Return the review of a new pod that the ReplicaSet's controller makes."""
    return _created(PODS, fleet, root, fleet.pod(root, number, "b"), REPLICATOR)


def lone_pod_created(fleet: Fleet, root: int, number: int) -> AdmissionRequest:
    """Return the review of the same pod without a controller."""
    thing = msgspec.json.decode(fleet.pod(root, number, "c"))
    del thing["metadata"]["ownerReferences"]
    return _created(PODS, fleet, root, msgspec.json.encode(thing), ADMIN)


def deployment_scaled(fleet: Fleet, root: int) -> AdmissionRequest:
    """Return the review of one replica more than a Deployment has."""
    meta = msgspec.json.decode(fleet.deployment(root))["metadata"]
    asked, stored = (_scale(meta, fleet.replicas + more) for more in (1, 0))
    request = {
        **_about(SCALES, fleet, root, meta["name"], ADMIN),
        "operation": "UPDATE",
        "subResource": "scale",
        "object": asked,
        "oldObject": stored,
    }
    request["resource"]["group"] = DEPLOYMENTS[0]
    return _decoded(request)


def _created(kind: Type, fleet: Fleet, root: int, thing: bytes, user: str) -> AdmissionRequest:
    name = msgspec.json.decode(thing)["metadata"]["name"]
    about = _about(kind, fleet, root, name, user)
    return _decoded({**about, "operation": "CREATE", "object": msgspec.Raw(thing)})


def _about(kind: Type, fleet: Fleet, root: int, name: str, user: str) -> dict[str, Any]:
    group, version, word, resource = kind
    return {
        "uid": "678ec104-fe57-4d05-bdfe-000000000001",
        "kind": {"group": group, "version": version, "kind": word},
        "resource": {"group": group, "version": version, "resource": resource},
        "name": name,
        "namespace": fleet.namespace(root),
        "userInfo": {"username": user, "groups": ["system:authenticated"]},
        "oldObject": None,
        "dryRun": False,
    }


def _scale(meta: dict[str, Any], replicas: int) -> dict[str, Any]:
    named = {field: meta[field] for field in ("name", "namespace", "uid")}
    return {
        "apiVersion": "autoscaling/v1",
        "kind": "Scale",
        "metadata": {**named, "resourceVersion": str(VERSION)},
        "spec": {"replicas": replicas},
    }


def _decoded(request: dict[str, Any]) -> AdmissionRequest:
    review = {"apiVersion": API_VERSION, "kind": KIND, "request": request}
    return decode(msgspec.json.encode(review))
