"""Pods of the service, as the Deployment makes them, and writes of their role with their tokens."""

from collections.abc import Sequence
from typing import Final

from ledger.kube.client.pod_role import LABEL, REVIEWER
from tests.e2e.harness.cluster import Answer, Cluster, Manifest
from tests.e2e.harness.polling import eventually
from tests.e2e.objects.forged_writes import NAME, SPACE

PODS: Final = f"/api/v1/namespaces/{SPACE}/pods"
SELECTED: Final = f"{PODS}?labelSelector=app.kubernetes.io/component=service"
MADE_SECONDS: Final = 60.0
ROLE_STATUSES: Final = {
    "own pod": 200,
    "own pod by a token of no pod": 403,
    "another replica": 403,
    "own pod with another value": 403,
    "pod of a tenant": 403,
    "removed from the own pod": 200,
    "removed from another replica": 200,
    "removed from a pod of a tenant": 403,
}
"""The status of each write of the role."""


async def replicas(admin: Cluster) -> Sequence[Manifest]:
    """Return two pods of the service, once the Deployment has made them."""
    made = await eventually(
        lambda: admin.items(SELECTED),
        lambda pods: len(pods) >= 2,
        within=MADE_SECONDS,
        what="the Deployment has made two pods",
    )
    return made[:2]


async def as_replica(admin: Cluster, pod: Manifest) -> Cluster:
    """Return the API server as a replica sees it, with the token of its pod."""
    reference = {"kind": "Pod", "apiVersion": "v1", "name": pod["metadata"]["name"]}
    path = f"/api/v1/namespaces/{SPACE}/serviceaccounts/{NAME}/token"
    answer = await admin.must("POST", path, {"spec": {"boundObjectRef": reference}})
    return admin.with_token(str(answer["status"]["token"]))


async def role_writes(admin: Cluster, service: Cluster, *, tenant: str) -> dict[str, Answer]:
    """Return the answers to all writes of `ROLE_STATUSES`, by a replica and by a token of no pod.

    `tenant` is the path of a pod of a tenant. All writes of the role are dry runs.
    """
    own_pod, other_pod = await replicas(admin)
    replica, own, other = await as_replica(admin, own_pod), path_of(own_pod), path_of(other_pod)
    # A write that changes nothing is always allowed.
    for path in (own, other, tenant):
        await admin.patch(path, _role(None))
    answers = {
        "own pod": await replica.patch(*_dry(own, REVIEWER)),
        "own pod by a token of no pod": await service.patch(*_dry(own, REVIEWER)),
        "another replica": await replica.patch(*_dry(other, REVIEWER)),
        "own pod with another value": await replica.patch(*_dry(own, "other")),
        "pod of a tenant": await replica.patch(*_dry(tenant, REVIEWER)),
    }
    for path in (own, other, tenant):
        await admin.patch(path, _role(REVIEWER))
    return answers | {
        "removed from the own pod": await replica.patch(*_dry(own, None)),
        "removed from another replica": await replica.patch(*_dry(other, None)),
        "removed from a pod of a tenant": await replica.patch(*_dry(tenant, None)),
    }


def path_of(pod: Manifest) -> str:
    """Return the path of a pod of the service."""
    return f"{PODS}/{pod['metadata']['name']}"


def _dry(path: str, value: str | None) -> tuple[str, Manifest]:
    return f"{path}?dryRun=All", _role(value)


def _role(value: str | None) -> Manifest:
    return {"metadata": {"labels": {LABEL: value}}}
