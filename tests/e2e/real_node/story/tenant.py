"""A tenant of the node: a namespace with pods, and what is true of them at any time."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from tests.e2e.harness.cluster import Manifest
from tests.e2e.real_node.story.api import ApiAnswer, wait_for
from tests.e2e.real_node.story.gpu_cluster import GpuCluster, memory_by_annotation
from tests.e2e.real_node.story.tenant_pod import PodProgram
from vgpu_native.plugin.kubelet import kubelet_checkpoint, pod_resources
from vgpu_native.plugin.kubelet.kubelet_checkpoint import CheckpointEntry
from vgpu_native.plugin.kubelet.pod_resources import DeviceHolder

RESOURCE: Final = "nvidia.com/gpu"
RUNS_SECONDS: Final = 60.0
GONE_SECONDS: Final = 60.0


class Tenant:
    """A namespace. `name` is also the team's name."""

    def __init__(self, gpus: GpuCluster, name: str) -> None:
        """Make the namespace."""
        self.gpus, self.name = gpus, name
        self._pods = f"/api/v1/namespaces/{name}/pods"
        metadata = {"name": name}
        namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata}
        gpus.api.must("POST", "/api/v1/namespaces", namespace)

    def limit(self, memory: int) -> None:
        """Give the namespace a quota of so many MiB, and wait until the ledger has it."""
        spec = {"hard": {"limits.nvidia.com/gpumem": str(memory)}}
        quota = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "gpus"}}
        path = f"/api/v1/namespaces/{self.name}/resourcequotas"
        self.gpus.api.must("POST", path, {**quota, "spec": spec})
        wait_for(
            lambda: self.gpus.gpuledger("usage", "-n", self.name),
            lambda rows: [row["limit"] for row in rows] == [memory],
            within=30,
            what="the ledger has the quota",
        )

    def end(self) -> None:
        """Delete the namespace, and wait until a second run can make it again."""
        path = f"/api/v1/namespaces/{self.name}"
        self.gpus.api.ask("DELETE", path)
        wait_for(
            lambda: self.gpus.api.ask("GET", path).status,
            lambda status: status == 404,
            within=GONE_SECONDS,
            what=f"the namespace {self.name} is gone",
        )

    def ask(self, pod: Manifest) -> ApiAnswer:
        """Post a pod; return the answer."""
        return self.gpus.api.ask("POST", self._pods, pod)

    def post(self, pod: Manifest) -> Manifest:
        """Post a pod that has to be admitted."""
        return self.gpus.api.must("POST", self._pods, pod)

    def pod(self, name: str) -> Manifest:
        """Return a pod as the API server has it."""
        return self.gpus.api.must("GET", f"{self._pods}/{name}")

    def pods(self) -> list[Manifest]:
        """Return all pods."""
        return self.gpus.api.items(self._pods)

    def wait(self, name: str, *phases: str, within: float = RUNS_SECONDS) -> Manifest:
        """Return a pod once it is in one of these phases."""
        return wait_for(
            lambda: self.pod(name),
            lambda pod: pod["status"]["phase"] in phases,
            within=within,
            what=f"pod {self.name}/{name} is {' or '.join(phases)}",
        )

    def program(self, name: str, within: float = RUNS_SECONDS) -> PodProgram:
        """Return the program of a pod, once it runs."""
        return PodProgram(self.wait(name, "Running", within=within)["status"]["podIP"])

    def delete(self, name: str) -> None:
        """Delete a pod without waiting for its end."""
        self.gpus.api.ask("DELETE", f"{self._pods}/{name}")

    def wait_gone(self, *names: str) -> None:
        """Wait until pods are gone."""
        wait_for(
            lambda: {pod["metadata"]["name"] for pod in self.pods()} & set(names),
            lambda left: not left,
            within=GONE_SECONDS,
            what=f"{', '.join(names)} are gone",
        )

    def events(self, name: str) -> dict[str, str]:
        """Return the messages of a pod's events by their reasons."""
        path = f"/api/v1/namespaces/{self.name}/events?fieldSelector=involvedObject.name%3D{name}"
        return {event["reason"]: event["message"] for event in self.gpus.api.items(path)}

    def wait_event(self, name: str, reason: str, *, within: float = 30.0) -> str:
        """Return the message of a pod's event, once there is one of this reason."""
        events = wait_for(
            lambda: self.events(name),
            lambda seen: reason in seen,
            within=within,
            what=f"pod {name} has an event {reason}",
        )
        return events[reason]

    def usage(self) -> int:
        """Return the MiB that the ledger counts for the namespace's only quota."""
        [row] = self.gpus.gpuledger("usage", "-n", self.name)
        return int(row["used"])

    def entry(self, uid: str) -> CheckpointEntry | None:
        """Return the entry of a pod in the kubelet's checkpoint."""
        plugins = self.gpus.node.disk / "lib/kubelet/device-plugins"
        entries = kubelet_checkpoint.read(plugins / "kubelet_internal_checkpoint", RESOURCE)
        return next((entry for entry in entries if entry.uid == uid), None)

    def holder(self, name: str) -> DeviceHolder | None:
        """Return the container of a pod in the kubelet's pod-resources API."""
        socket = self.gpus.node.disk / "lib/kubelet/pod-resources/kubelet.sock"
        holders = asyncio.run(pod_resources.holders(socket, RESOURCE))
        return next(
            (held for held in holders if (held.namespace, held.pod) == (self.name, name)), None
        )

    def cards_by_ledger(self, pod: Manifest) -> set[str]:
        """Return the cards on which a pod was placed."""
        return set(memory_by_annotation(pod))

    def cards_by_runtime(self, uid: str) -> list[set[str]]:
        """Return the cards that the runtime gave each start of a pod's containers."""
        return [
            set(made["visible"].split(","))
            for made in self.gpus.node.given()
            if made["sandbox-uid"] == uid and made["container-name"] and made["visible"]
        ]

    def assert_own_cards(self, pod: Manifest) -> None:
        """Fail where a container of a pod has got no cards, or others than its placement has."""
        name, placed = pod["metadata"]["name"], self.cards_by_ledger(pod)
        starts = self.cards_by_runtime(pod["metadata"]["uid"])
        assert starts, f"{name}: the runtime has given no container cards"
        for given in starts:
            assert given == placed, f"{name}: placed on {placed}, given {given}"

    def report(self) -> Any:
        """Return the pods and events, which explain a failure."""
        typed = f"kubectl -n {self.name} get pods,events -o wide; kubectl get pods -A -o wide"
        return self.gpus.cluster.kubectl.attempt(typed)[1]


@contextmanager
def tenant(gpus: GpuCluster, name: str) -> Iterator[Tenant]:
    """Make a tenant for a block; its pods are gone afterwards."""
    made = Tenant(gpus, name)
    try:
        yield made
    except BaseException:
        print(made.report())
        raise
    finally:
        names = [pod["metadata"]["name"] for pod in made.pods()]
        for each in names:
            made.delete(each)
        made.wait_gone(*names)
        made.end()
