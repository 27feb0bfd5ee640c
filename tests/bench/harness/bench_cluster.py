"""Bench cluster: a control plane of real etcd, kube-apiserver and kube-controller-manager.

The binaries are those of the end-to-end tests: a folder named by KUBEBUILDER_ASSETS.
"""

import asyncio
import os
import ssl
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, TypeVar

import aiohttp

from tests.bench.harness.results import Skipped
from tests.e2e.harness.cluster import Cluster, Manifest
from tests.e2e.harness.controlplane import ADMIN, ControlPlane
from tests.e2e.harness.polling import eventually

ASSETS_VARIABLE: Final = "KUBEBUILDER_ASSETS"
EFFECTIVE_SECONDS: Final = 30.0
PAGE: Final = 500

WEBHOOKS: Final = "/apis/admissionregistration.k8s.io/v1"

T = TypeVar("T")


class BenchCluster:
    """A running control plane, used one step at a time."""

    def __init__(self, plane: ControlPlane) -> None:
        self.plane = plane
        self.ca, self.token = str(plane.ca), plane.token(ADMIN)
        self.address = plane.url.removeprefix("https://")

    def do(self, step: Callable[[Cluster], Awaitable[T]]) -> T:
        """Do something as the administrator."""
        return asyncio.run(self._do(step))

    def make_namespace(self, name: str) -> None:
        """Create a namespace."""
        thing = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
        self.do(lambda cluster: cluster.must("POST", "/api/v1/namespaces", thing))

    def limit(self, namespace: str, limits: dict[str, int]) -> None:
        """Create a ResourceQuota of some keys and wait until Kubernetes has its status."""
        path = f"/api/v1/namespaces/{namespace}/resourcequotas"
        hard = {key: str(limit) for key, limit in limits.items()}
        thing = {
            "apiVersion": "v1",
            "kind": "ResourceQuota",
            "metadata": {"name": "gpus"},
            "spec": {"hard": hard},
        }

        async def create(cluster: Cluster) -> None:
            await cluster.must("POST", path, thing)
            await eventually(
                lambda: cluster.must("GET", f"{path}/gpus"),
                lambda seen: "hard" in seen.get("status", {}),
                within=EFFECTIVE_SECONDS,
                what=f"the quota of {namespace} has a status",
            )

        self.do(create)

    def count(self, namespace: str) -> int:
        """Return how many pods a namespace has."""
        path = f"/api/v1/namespaces/{namespace}/pods?limit={PAGE}"

        async def pods(cluster: Cluster) -> int:
            listed = await cluster.must("GET", path)
            return len(listed["items"]) + int(listed["metadata"].get("remainingItemCount", 0))

        return self.do(pods)

    def any_pod(self, namespace: str) -> Manifest:
        """Return one pod of a namespace."""
        path = f"/api/v1/namespaces/{namespace}/pods?limit=1"
        return self.do(lambda cluster: cluster.items(path))[0]

    def clear(self, namespace: str) -> None:
        """Delete all pods of a namespace, at once."""
        path = f"/api/v1/namespaces/{namespace}/pods"
        options = {"gracePeriodSeconds": 0}
        self.do(lambda cluster: cluster.must("DELETE", path, options))

    def register(self, configurations: list[dict[str, Any]]) -> None:
        """Create webhook configurations."""

        async def create(cluster: Cluster) -> None:
            for configuration in configurations:
                path = f"{WEBHOOKS}/{configuration['kind'].lower()}s"
                await cluster.must("POST", path, configuration)

        self.do(create)

    async def _do(self, step: Callable[[Cluster], Awaitable[T]]) -> T:
        context = ssl.create_default_context(cafile=self.ca)
        connector = aiohttp.TCPConnector(ssl=context)
        async with aiohttp.ClientSession(connector=connector) as session:
            return await step(Cluster(session, self.plane.url, self.token))


@contextmanager
def bench_cluster(folder: Path, controller_flags: Sequence[str] = ()) -> Iterator[BenchCluster]:
    """Run a control plane for the block. Raises Skipped where there are no binaries."""
    assets = os.environ.get(ASSETS_VARIABLE)
    if not assets:
        raise Skipped(
            f"{ASSETS_VARIABLE} is not set: nothing was measured on a real API server. Point it at"
            " a folder with etcd, kube-apiserver and kube-controller-manager"
            " (tests/e2e/README.md says how to get one)"
        )
    folder.mkdir()
    plane = ControlPlane(Path(assets), folder, controller_flags=controller_flags)
    plane.start()
    try:
        yield BenchCluster(plane)
    finally:
        plane.stop()
