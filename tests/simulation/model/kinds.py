"""The kinds of the simulated clusters, and their objects as manifests.

Three come along with the product and one is declared, as a user would declare it.
"""

from functools import cache
from typing import Any, Final

import msgspec

from ledger.kube.api.api_resources import (
    CLAIM_TEMPLATES,
    CLAIMS,
    DEVICE_CLASSES,
    NAMESPACES,
    POLICIES,
    RESOURCE_SLICES,
    UNIVERSE_QUOTAS,
    Resource,
)
from ledger.kube.api.objects import ObjectMeta, OwnerReference, Pod, PodSpec, Workload
from webhook.kinds.kind_catalog import KindCatalog
from webhook.kinds.kind_schema import decode

DEPLOYMENTS: Final = Resource("apps", "v1", "deployments", "Deployment")
REPLICASETS: Final = Resource("apps", "v1", "replicasets", "ReplicaSet")
JOBS: Final = Resource("batch", "v1", "jobs", "Job")
TRAININGS: Final = Resource("example.io", "v1", "trainings", "Training")

ROOTS: Final = {resource.name: resource for resource in (DEPLOYMENTS, REPLICASETS, JOBS, TRAININGS)}
"""The kinds that make pods, by resource with the group."""

ROOT_KINDS: Final = {resource.kind for resource in ROOTS.values()}
CLAIM_KINDS: Final = {resource.kind: resource for resource in (CLAIMS, CLAIM_TEMPLATES)}
"""The reviewed kinds of resource claims."""

RESOURCES: Final = {
    **ROOTS,
    **{resource.name: resource for resource in (NAMESPACES, UNIVERSE_QUOTAS, POLICIES)},
    **{
        resource.name: resource
        for resource in (CLAIMS, CLAIM_TEMPLATES, DEVICE_CLASSES, RESOURCE_SLICES)
    },
}
"""Everything that is served besides pods and ResourceQuotas."""

OPERATOR: Final = "system:serviceaccount:training:operator"
_DECLARED: Final = {
    "group": "example.io",
    "resource": "trainings",
    "kind": "Training",
    "podSets": [
        {"template": "spec.leader.template"},
        {"template": "spec.workers.template", "count": "default(spec.workers.replicas, 1)"},
    ],
    "scale": "spec.workers.replicas",
    "controllers": [OPERATOR],
}

GPU: Final = "nvidia.com/gpu"
MEMORY: Final = "nvidia.com/gpumem"
CORES: Final = "nvidia.com/gpucores"
APP: Final = "app"

Manifest = dict[str, Any]


@cache
def catalog() -> KindCatalog:
    """Return the kinds as the webhooks know them."""
    builtin = [kind for kind in KindCatalog.load() if kind.name in ROOTS]
    return KindCatalog([*builtin, decode(_DECLARED)])


def controller_of(resource: Resource) -> str:
    """Return the user that makes the objects that objects of a kind control."""
    kind = catalog().of_resource(resource.group, resource.plural)
    assert kind is not None, "only kinds of the catalog are simulated"
    return kind.controllers[0]


def resource_of(item: Workload) -> Resource:
    """Return the resource of an object that makes pods, or of a resource claim."""
    if item.kind in CLAIM_KINDS:
        return CLAIM_KINDS[item.kind]
    return next(resource for resource in ROOTS.values() if resource.kind == item.kind)


def template(
    gpus: int,
    memory: int,
    app: str,
    priority: str,
    cores: int = 0,
    claims: list[Manifest] | None = None,
) -> Manifest:
    """Return the template of pods with so many cards, of each so many MiB and percent.

    `claims` are the resource claims of the pods as their spec has them.
    """
    limits = {GPU: str(gpus), MEMORY: str(memory)}
    if cores:
        limits[CORES] = str(cores)
    spec: Manifest = {"containers": [{"name": "main", "resources": {"limits": limits}}]}
    if priority:
        spec["priorityClassName"] = priority
    if claims:
        spec["resourceClaims"] = claims
    return {"metadata": {"labels": {APP: app}} if app else {}, "spec": spec}


def spec_of(resource: Resource, count: int, pods: Manifest) -> Manifest:
    """Return the spec of a root that runs `count` pods, besides a leader that a Training has."""
    if resource is JOBS:
        return {"parallelism": count, "completions": 2 * count, "template": pods}
    if resource is TRAININGS:
        return {"leader": {"template": pods}, "workers": {"replicas": count, "template": pods}}
    return {"replicas": count, "template": pods}


def count_of(root: Workload) -> int:
    """Return the number in a root's spec that `with_count` changes."""
    spec = root.spec or {}
    if root.kind == JOBS.kind:
        return int(spec["parallelism"])
    return int((spec["workers"] if root.kind == TRAININGS.kind else spec)["replicas"])


def with_count(root: Workload, count: int) -> Workload:
    """Return a root that runs another number of pods."""
    spec = root.spec or {}
    if root.kind == JOBS.kind:
        return msgspec.structs.replace(root, spec={**spec, "parallelism": count})
    if root.kind == TRAININGS.kind:
        workers = {**spec["workers"], "replicas": count}
        return msgspec.structs.replace(root, spec={**spec, "workers": workers})
    return msgspec.structs.replace(root, spec={**spec, "replicas": count})


def templates_of(root: Workload) -> list[Manifest]:
    """Return the pod templates of a root, a Training's leader first."""
    spec = root.spec or {}
    if root.kind == TRAININGS.kind:
        return [spec["leader"]["template"], spec["workers"]["template"]]
    return [spec["template"]]


def with_templates(root: Workload, pods: Manifest) -> Workload:
    """Return a root all of whose pods are like this template."""
    spec = root.spec or {}
    if root.kind == TRAININGS.kind:
        parts = {name: {**spec[name], "template": pods} for name in ("leader", "workers")}
        return msgspec.structs.replace(root, spec={**spec, **parts})
    return msgspec.structs.replace(root, spec={**spec, "template": pods})


def reference_to(root: Workload) -> OwnerReference:
    """Return an owner reference that names a root as controller."""
    resource, meta = resource_of(root), root.metadata
    return OwnerReference(
        resource.kind, meta.name, meta.uid, controller=True, api_version=resource.api_version
    )


def pod_of(pods: Manifest, namespace: str, owner: OwnerReference | None) -> Pod:
    """Return a pod of a template that is to get a name."""
    meta = ObjectMeta(
        generate_name="g-",
        namespace=namespace,
        labels=pods["metadata"].get("labels"),
        owner_references=[owner] if owner is not None else None,
    )
    return Pod(meta, msgspec.convert(pods["spec"], PodSpec))
