"""The real kubelet as the contract of device plugins uses it: pods are posted to its node."""

import asyncio
import itertools
from collections.abc import Sequence
from typing import Any, Final

from support.fakes.kubelet import Asked
from support.kubelets.kubelet_contract import PodOutcome, eventually

from tests.e2e.harness.cluster import Manifest
from tests.e2e.install.rig.images import BUSYBOX
from tests.e2e.real_node.story.gpu_cluster import NODE, NODE_PATH
from tests.e2e.real_node.story.tenant import Tenant

WAITING: Final = "CreateContainerConfigError"
_numbers: Final = itertools.count(100_000)
"""Seconds that containers sleep, each another number, by which its process is found."""


class RealKubelet:
    """The kubelet of a tenant's node, for one resource."""

    def __init__(self, team: Tenant, resource: str) -> None:
        """Take the resource that the plugin registers."""
        self._team, self._resource = team, resource
        self._seconds: dict[str, int] = {}
        home = team.gpus.node.disk / "lib/kubelet"
        self.plugins = home / "device-plugins"
        self.pod_resources = home / "pod-resources/kubelet.sock"

    async def run(self, name: str, asked: Sequence[Asked]) -> PodOutcome:
        """Post a pod to the node; return once its containers run, or do not."""
        self._seconds[name] = next(_numbers)
        await asyncio.to_thread(self._team.post, self._pod(name, asked))
        return await self._outcome(name, ("Running", "Rejected", "Waiting"))

    async def retry(self, name: str) -> PodOutcome:
        """Return once a pod that waits runs."""
        return await self._outcome(name, ("Running", "Rejected"))

    async def end(self, name: str) -> None:
        """Delete a pod; return once it is gone."""
        await asyncio.to_thread(self._team.delete, name)
        await asyncio.to_thread(self._team.wait_gone, name)

    async def crash(self, name: str) -> None:
        """End the only container of a pod; return once it runs again."""
        before = await self._restarts(name)
        await asyncio.to_thread(self._team.gpus.node.end, "sleep", str(self._seconds[name]))
        await eventually(lambda: self._restarts(name), lambda count: count > before)
        await self.retry(name)

    async def restart(self) -> None:
        """Kill the kubelet; return once it takes registrations again."""
        socket = self.plugins / "kubelet.sock"
        before = socket.stat().st_ino, socket.stat().st_mtime_ns
        node = self._team.gpus.node
        await asyncio.to_thread(node.down, "kubelet")
        node.up("kubelet")

        async def now() -> tuple[int, int]:
            if not socket.exists():
                return before
            return socket.stat().st_ino, socket.stat().st_mtime_ns

        await eventually(now, lambda seen: seen != before)

    async def allocatable(self) -> int:
        """Return the devices that the Node offers."""
        node = await asyncio.to_thread(self._team.gpus.api.must, "GET", NODE_PATH)
        return int(node["status"]["allocatable"].get(self._resource, 0))

    async def _restarts(self, name: str) -> int:
        pod = await asyncio.to_thread(self._team.pod, name)
        [state] = pod["status"]["containerStatuses"]
        return int(state["restartCount"])

    async def _outcome(self, name: str, phases: tuple[str, ...]) -> PodOutcome:
        async def look() -> PodOutcome:
            return _outcome_of(await asyncio.to_thread(self._team.pod, name))

        return await eventually(look, lambda outcome: outcome.phase in phases)

    def _pod(self, name: str, asked: Sequence[Asked]) -> Manifest:
        spec: dict[str, Any] = {
            "nodeName": NODE,
            "terminationGracePeriodSeconds": 1,
            "automountServiceAccountToken": False,
            "initContainers": [self._container(name, each) for each in asked if each.init],
            "containers": [self._container(name, each) for each in asked if not each.init],
        }
        return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}

    def _container(self, pod: str, asked: Asked) -> Manifest:
        ends = asked.init and not asked.sidecar
        container: Manifest = {
            "name": asked.name,
            "image": BUSYBOX,
            "imagePullPolicy": "Never",
            "command": ["true"] if ends else ["sleep", str(self._seconds[pod])],
        }
        if asked.count:
            container["resources"] = {"limits": {self._resource: str(asked.count)}}
        return container | ({"restartPolicy": "Always"} if asked.sidecar else {})


def _outcome_of(pod: Manifest) -> PodOutcome:
    """Return the outcome of a pod; its phase is empty until that is certain."""
    status = pod["status"]
    if status["phase"] == "Failed":
        return PodOutcome("Rejected", status["reason"])
    states = status.get("containerStatuses", ())
    if states and all("running" in state["state"] for state in states):
        return PodOutcome("Running")
    reasons = [state["state"].get("waiting", {}).get("reason") for state in states]
    return PodOutcome("Waiting", WAITING) if WAITING in reasons else PodOutcome("")
