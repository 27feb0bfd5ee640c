"""Reviews of resource claims: a namespace with device classes, slices and templates of claims."""

from typing import Any

import msgspec
from support.builders.admission_reviews import CoreLedger, pod, review, serving
from support.fakes.owner_cluster import Manifest, OwnerCluster, around, of

from ledger.core.model.commands import Observe, Reserve
from ledger.kube.api.api_resources import CLAIM_TEMPLATES, CLAIMS, DEVICE_CLASSES, Resource
from ledger.kube.api.cluster_ports import Listed
from ledger.kube.api.objects import Pod, Workload
from ledger.kube.resource_claims.dra_objects import ResourceClaim
from webhook.context.admission_settings import AdmissionSettings
from webhook.context.namespace_policies import NamespacePolicy
from webhook.context.resource_claims.slice_feed import kept_slice

DRIVER = "gpu.nvidia.com"
CONTROLLER = "system:kube-controller-manager"
SCHEDULER = "system:kube-scheduler"
CLAIM_NAME = "resource.kubernetes.io/pod-claim-name"
EXTENDED = "resource.kubernetes.io/extended-resource-claim"
_STEPS = {"default": "1Gi", "validRange": {"min": "1Gi", "step": "1Gi"}}
GI = 1024
"""MiB of one Gi."""


def device_class(name: str, driver: str = DRIVER, extended: str = "") -> Manifest:
    """Return a class of all devices of a driver."""
    selectors = [{"cel": {"expression": f"device.driver == '{driver}'"}}]
    spec = {"selectors": selectors, **({"extendedResourceName": extended} if extended else {})}
    return {**_head(DEVICE_CLASSES, name), "spec": spec}


def resource_slice(
    node: str = "n1", *, gi: int = 80, cards: int = 2, shared: bool = True
) -> Manifest:
    """Return a slice of cards that claims may share in steps of 1 Gi, or of whole cards."""
    memory = {
        "value": f"{gi}Gi",
        **({"requestPolicy": _STEPS} if shared else {}),
    }
    devices = [
        {
            "name": f"gpu-{number}",
            "attributes": {"uuid": {"string": f"GPU-{node}-{number}"}},
            "capacity": {"memory": memory},
            "allowMultipleAllocations": shared,
        }
        for number in range(cards)
    ]
    pool = {"name": node, "generation": 1, "resourceSliceCount": 1}
    spec = {"driver": DRIVER, "pool": pool, "nodeName": node, "devices": devices}
    return {"metadata": {"name": f"{node}-slice", "uid": f"u-{node}"}, "spec": spec}


def claim_spec(gi: int = 8, *, count: int = 1, cls: str = "gpu", **more: Any) -> Manifest:
    """Return the spec of a claim for devices with so many Gi each."""
    exactly = {
        "deviceClassName": cls,
        "allocationMode": "ExactCount",
        "count": count,
        "capacity": {"requests": {"memory": f"{gi}Gi"}},
        **more,
    }
    return {"devices": {"requests": [{"name": "main", "exactly": exactly}]}}


def claim_template(name: str = "small", gi: int = 8, **more: Any) -> Manifest:
    """Return a template of claims."""
    meta = {"namespace": "team"}
    head = _head(CLAIM_TEMPLATES, name, **meta)
    return {**head, "spec": {"spec": claim_spec(gi, **more)}}


def resource_claim(name: str, spec: Manifest | None = None, **metadata: Any) -> Manifest:
    """Return a claim as it would be persisted."""
    head = _head(CLAIMS, name, **{"namespace": "team", **metadata})
    return {**head, "spec": spec or claim_spec(), "status": {}}


def generated(owner: Manifest, name: str = "g", gi: int = 8, **changed: Any) -> Manifest:
    """Return the claim that the controller generates for a claim of a pod."""
    meta = owner["metadata"]
    reference = {
        "apiVersion": "v1",
        "kind": "Pod",
        "name": meta["name"],
        "uid": meta["uid"],
        "controller": True,
    }
    metadata = {"annotations": {CLAIM_NAME: name}, "ownerReferences": [reference], **changed}
    named = metadata.pop("named", f"{meta['name']}-{name}-x1")
    return resource_claim(named, claim_spec(gi), **metadata)


def claiming_pod(name: str = "p", *templates: str, gate: str = "", **limits: str) -> Manifest:
    """Return a pod with claims g, g1, … of these templates."""
    body = pod(limits, name=name, uid=f"u-{name}")
    body["spec"]["resourceClaims"] = [
        {"name": f"g{number or ''}", "resourceClaimTemplateName": template}
        for number, template in enumerate(templates or ("small",))
    ]
    if gate:
        body["spec"]["schedulingGates"] = [{"name": gate}]
    return body


def read(manifest: Manifest) -> ResourceClaim:
    """Return a claim as the ledger reads it."""
    return msgspec.convert(manifest, ResourceClaim)


class ClaimTeam:
    """One namespace whose pods and claims are reviewed by one replica."""

    def __init__(
        self, *objects: Manifest, settings: AdmissionSettings | None = None, **policy: Any
    ) -> None:
        self.ledger = CoreLedger()
        self.settings = settings or AdmissionSettings()
        self.cluster = OwnerCluster(*objects)
        self.context = around(self.ledger, self.cluster, default=NamespacePolicy(**policy))
        self.store = self.context.resource_claims
        self.list_classes(device_class("gpu"))
        self.list_slices(resource_slice())
        self.list_templates(claim_template())

    def list_classes(self, *classes: Manifest) -> None:
        """Have the watch list these classes."""
        kept = [self.store.classes.kept(_workload(item)) for item in classes]
        self.store.classes.take(Listed(1, kept))

    def list_templates(self, *templates: Manifest) -> None:
        """Have the watch list these templates."""
        kept = [self.store.templates.kept(_workload(item)) for item in templates]
        self.store.templates.take(Listed(1, kept))

    def list_slices(self, *slices: Manifest) -> None:
        """Have the watch list these slices."""
        self.store.slices.take(Listed(1, [kept_slice(_workload(item)) for item in slices]))

    async def post(self, request: dict[str, Any], webhook: str = "validate") -> dict[str, Any]:
        """Return the response to a review."""
        serve = serving(self.ledger, context=self.context, policy=self.settings)
        async with serve as service:
            return await service.post(request, webhook)

    async def create(self, manifest: Manifest, username: str = "ada", **more: Any) -> Any:
        """Return the response to the creation of a pod, a claim or a template."""
        where = {} if manifest["kind"] == "Pod" else of(_RESOURCES[manifest["kind"]])
        return await self.post(review(manifest, username=username, **where, **more))

    async def update(
        self, new: Manifest, old: Manifest, username: str = "ada", subresource: str = ""
    ) -> Any:
        """Return the response to the update of a claim or pod on version 5."""
        where = {} if new["kind"] == "Pod" else of(_RESOURCES[new["kind"]], subresource)
        for stored in (old, new):
            stored["metadata"]["resourceVersion"] = "5"
        return await self.post(review(new, old, operation="UPDATE", username=username, **where))

    def observe(self, key: str, uid: str, **demand: int) -> None:
        """Have the ledger commit an object with MiB of memory, or without amounts."""
        charged = {"nvidia.com/gpumem": demand["memory"]} if demand else {}
        self.ledger.apply(Observe("east/team", key, uid, 5, charged))

    def reserved(self) -> dict[str, int]:
        """Return the reserved MiB by key, without dry runs."""
        return {
            command.key: command.demand.get("nvidia.com/gpumem", 0)
            for command in self.ledger.commands()
            if isinstance(command, Reserve)
        }

    def demand(self, manifest: Manifest) -> Any:
        """Return the demand of the claims of a pod."""
        return self.store.of_pod(msgspec.convert(manifest, Pod))


async def charged_alone(team: ClaimTeam, claim: Manifest, username: str = CONTROLLER) -> bool:
    """Return whether a claim is allowed with a charge of its own."""
    assert (await team.create(claim, username))["allowed"]
    key = f"resourceclaims.resource.k8s.io/{claim['metadata']['name']}"
    reserved = team.reserved()
    assert set(reserved) <= {key}
    return key in reserved


_RESOURCES = {resource.kind: resource for resource in (CLAIMS, CLAIM_TEMPLATES)}


def _head(resource: Resource, name: str, **metadata: Any) -> Manifest:
    return {
        "apiVersion": resource.api_version,
        "kind": resource.kind,
        "metadata": {"name": name, "uid": f"u-{name}", **metadata},
    }


def _workload(manifest: Manifest) -> Workload:
    return msgspec.convert(manifest, Workload)
