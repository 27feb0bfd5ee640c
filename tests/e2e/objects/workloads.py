"""Workloads of the tests: manifests of every kind, and what is done to them in a namespace."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final

from tests.e2e.harness.cluster import Answer, Cluster, Manifest
from tests.e2e.harness.polling import eventually
from tests.e2e.objects.fake_operators import KINDS
from tests.e2e.objects.pods import pod
from tests.e2e.objects.team import Team

SERVED: Final = {
    "Deployment": ("apps/v1", "deployments"),
    "ReplicaSet": ("apps/v1", "replicasets"),
    "StatefulSet": ("apps/v1", "statefulsets"),
    "DaemonSet": ("apps/v1", "daemonsets"),
    "Job": ("batch/v1", "jobs"),
    "CronJob": ("batch/v1", "cronjobs"),
    **{kind.kind: (f"{kind.group}/{kind.version}", kind.resource) for kind in KINDS},
}
"""Version and resource by kind."""

MERGE: Final = "application/merge-patch+json"
APPLY: Final = "application/apply-patch+yaml"
AUTOSCALER: Final = "system:serviceaccount:kube-system:horizontal-pod-autoscaler"
CONTROLLER_SECONDS: Final = 20.0
"""How long a controller may take to carry out a spec."""

TRIES_MAX: Final = 5
_LOOK_SECONDS: Final = 0.2


def template(*, labels: dict[str, str] | None = None, **wanted: Any) -> Manifest:
    """Return the template of `pods.pod`: by default 1 card with 1000 MiB and 10 percent."""
    annotations = wanted.pop("annotations", {})
    spec = {**pod("template", **wanted)["spec"]}
    return {"metadata": {"labels": labels or {}, "annotations": annotations}, "spec": spec}


def workload(kind: str, name: str = "web", **spec: Any) -> Manifest:
    """Return an object of any kind."""
    version, _ = SERVED[kind]
    return {"apiVersion": version, "kind": kind, "metadata": {"name": name}, "spec": spec}


def replicated(kind: str, replicas: int, name: str = "web", **wanted: Any) -> Manifest:
    """Return a Deployment, ReplicaSet, StatefulSet or DaemonSet; `spec` holds further fields."""
    labels, further = {"app": name}, wanted.pop("spec", {})
    if kind == "StatefulSet":
        further = {"serviceName": name, "podManagementPolicy": "Parallel", **further}
    if kind != "DaemonSet":
        further = {"replicas": replicas, **further}
    return workload(
        kind,
        name,
        selector={"matchLabels": labels},
        template=template(labels=labels, **wanted),
        **further,
    )


def job(parallelism: int, name: str = "train", **wanted: Any) -> Manifest:
    """Return a Job; `spec` holds further fields."""
    further = wanted.pop("spec", {})
    pod_template = template(**wanted)
    pod_template["spec"]["restartPolicy"] = "Never"
    return workload("Job", name, parallelism=parallelism, template=pod_template, **further)


def controlled_by(owner: Manifest) -> list[Manifest]:
    """Return the ownerReferences of what a stored object controls."""
    return [
        {
            "apiVersion": owner["apiVersion"],
            "kind": owner["kind"],
            "name": owner["metadata"]["name"],
            "uid": owner["metadata"]["uid"],
            "controller": True,
            "blockOwnerDeletion": True,
        }
    ]


class TeamWorkloads:
    """The workloads of a team's namespace, as one user handles them."""

    def __init__(self, team: Team, cluster: Cluster | None = None) -> None:
        self.team = team
        self.cluster = cluster or team.cluster

    def as_user(self, user: str) -> "TeamWorkloads":
        """Return the same namespace as another user handles it."""
        return TeamWorkloads(self.team, self.team.cluster.as_user(user))

    def path(self, kind: str, name: str = "", subresource: str = "") -> str:
        """Return the path of a kind, of one object, or of a subresource of it."""
        if kind == "Pod":
            base = f"{self.team.path}/pods"
        else:
            version, resource = SERVED[kind]
            base = f"/apis/{version}/namespaces/{self.team.namespace}/{resource}"
        return "/".join(filter(None, (base, name, subresource)))

    async def create(self, manifest: Manifest, **options: Any) -> Answer:
        """POST an object."""
        return await self.cluster.ask("POST", self.path(manifest["kind"]), manifest, **options)

    async def created(self, manifest: Manifest) -> Manifest:
        """POST an object that has to be admitted; return it as stored."""
        return await self.cluster.must("POST", self.path(manifest["kind"]), manifest)

    async def get(self, kind: str, name: str) -> Manifest:
        """Read an object."""
        return await self.cluster.must("GET", self.path(kind, name))

    async def change(self, kind: str, name: str, change: Manifest) -> Answer:
        """Send a JSON merge patch of an object."""
        return await self.cluster.patch(self.path(kind, name), change)

    async def status(self, kind: str, name: str, status: Manifest) -> None:
        """Write a status, as its controller would."""
        path = self.path(kind, name, "status")
        answer = await self.cluster.patch(path, {"status": status})
        assert answer.status == 200, answer

    async def apply(self, manifest: Manifest, manager: str = "kubectl") -> Answer:
        """Send a server-side apply."""
        path = self.path(manifest["kind"], manifest["metadata"]["name"])
        query = {"fieldManager": manager, "force": "true"}
        kind = {"Content-Type": APPLY}
        return await self.cluster.ask("PATCH", path, manifest, headers=kind, params=query)

    async def scale(self, kind: str, name: str, replicas: int) -> Answer:
        """PATCH the scale subresource, as `kubectl scale` does."""
        change = {"spec": {"replicas": replicas}}
        return await self.cluster.patch(self.path(kind, name, "scale"), change)

    async def scale_by_put(self, kind: str, name: str, replicas: int) -> Answer:
        """Read the scale subresource and PUT it back, as the HorizontalPodAutoscaler does.

        It tries again when another client, such as the controller, has written in between.
        """
        path = self.path(kind, name, "scale")
        for _ in range(TRIES_MAX):
            scale = await self.cluster.must("GET", path)
            scale["spec"] = {"replicas": replicas}
            answer = await self.cluster.ask("PUT", path, scale)
            if answer.status != 409:
                break
        return answer

    async def delete(self, kind: str, name: str, propagation: str = "Background") -> None:
        """Delete an object."""
        options = {"propagationPolicy": propagation}
        await self.cluster.must("DELETE", self.path(kind, name), options)

    async def gone(self, kind: str, name: str) -> None:
        """Wait until an object is no more."""
        await eventually(
            lambda: self.cluster.ask("GET", self.path(kind, name)),
            lambda answer: answer.status == 404,
            within=CONTROLLER_SECONDS,
            what=f"{kind} {name} is gone",
        )

    async def live(self) -> list[Manifest]:
        """Return the pods that neither are finished nor being deleted."""
        return [
            manifest
            for manifest in await self.team.pods()
            if manifest.get("status", {}).get("phase") not in ("Succeeded", "Failed")
            and "deletionTimestamp" not in manifest["metadata"]
        ]

    async def pods_are(self, count: int) -> list[Manifest]:
        """Wait until exactly so many pods live, and return them."""
        return await eventually(
            self.live,
            lambda pods: len(pods) == count,
            within=CONTROLLER_SECONDS,
            what=f"{count} pods live in {self.team.namespace}",
        )

    @asynccontextmanager
    async def kubelet(self) -> AsyncIterator[None]:
        """Let every pod run and be ready, as kubelets would, until the context ends."""
        playing = asyncio.create_task(self._play_kubelet())
        try:
            yield
            assert not playing.done(), playing.exception()
        finally:
            playing.cancel()
            await asyncio.gather(playing, return_exceptions=True)

    async def _play_kubelet(self) -> None:
        conditions = [{"type": kind, "status": "True"} for kind in ("Ready", "ContainersReady")]
        ready = {"status": {"phase": "Running", "conditions": conditions}}
        while True:
            for manifest in await self.live():
                if manifest["status"].get("phase") != "Running":
                    path = self.path("Pod", manifest["metadata"]["name"], "status")
                    await self.team.cluster.patch(path, ready)
            await asyncio.sleep(_LOOK_SECONDS)
