"""One namespace of a test of scheduling, and the check that cards are where pods are."""

import asyncio
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

from support.oracles import placement_oracle
from support.oracles.placement_oracle import CardUsage, Usage

from ledger.kube.client.pod_events import SERVICE
from tests.e2e.harness.cluster import Cluster, Manifest
from tests.e2e.harness.polling import eventually
from tests.e2e.harness.service import Service
from tests.e2e.scheduling.support import card_limits
from tests.e2e.scheduling.support.nodes import NODES
from tests.e2e.scheduling.support.pod_shapes import APPS, BATCH
from tests.e2e.scheduling.support.scheduling_cluster import SchedulingCluster, connected

SCHEDULED_SECONDS: Final = 60.0
AGREED_SECONDS: Final = 90.0
REQUESTS_MAX: Final = 16

_PATHS: Final = {
    "Deployment": (APPS, "deployments"),
    "DaemonSet": (APPS, "daemonsets"),
    "Job": (BATCH, "jobs"),
    "Pod": ("/api/v1", "pods"),
}


class SchedulingTeam:
    """A namespace on a yard."""

    def __init__(self, yard: SchedulingCluster, cluster: Cluster, folder: Path) -> None:
        self.yard = yard
        self.cluster = cluster
        self.namespace = f"team-{uuid.uuid4().hex[:8]}"
        self.path = f"/api/v1/namespaces/{self.namespace}"
        self._folder = folder

    async def open(self) -> None:
        """Make the namespace."""
        manifest = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": self.namespace}}
        await self.cluster.must("POST", "/api/v1/namespaces", manifest)

    async def create(self, *manifests: Manifest) -> None:
        """Create pods and workloads that have to be admitted, several at once."""
        at_once = asyncio.Semaphore(REQUESTS_MAX)

        async def post(manifest: Manifest) -> None:
            group, resource = _PATHS[manifest["kind"]]
            path = f"{group}/namespaces/{self.namespace}/{resource}"
            async with at_once:
                await self.cluster.must("POST", path, manifest)

        await asyncio.gather(*map(post, manifests))

    async def pods(self) -> list[Manifest]:
        """List the pods by a linearizable read."""
        return await self.cluster.items(f"{self.path}/pods")

    async def bound(self) -> list[Manifest]:
        """List the pods that have a node."""
        return [pod for pod in await self.pods() if "nodeName" in pod["spec"]]

    async def are_bound(self, count: int, *, within: float = SCHEDULED_SECONDS) -> list[Manifest]:
        """Wait until so many pods have a node, and return them."""
        return await eventually(
            self.bound,
            lambda pods: len(pods) == count,
            within=within,
            what=f"{count} pods of {self.namespace} are bound",
        )

    async def told(self, name: str) -> str:
        """Return the message of a pod's condition why it is not scheduled, or ""."""
        pod = await self.cluster.must("GET", f"{self.path}/pods/{name}")
        for condition in pod.get("status", {}).get("conditions") or ():
            if condition["type"] == "PodScheduled" and condition["status"] == "False":
                return str(condition.get("message", ""))
        return ""

    async def has_event_with(self, name: str, *words: str) -> str:
        """Wait until a pod's condition contains these words, and return all of it."""
        return await eventually(
            lambda: self.told(name),
            lambda text: all(word in text for word in words),
            within=SCHEDULED_SECONDS,
            what=f"an event of {name} with {words}",
        )

    async def events_are(self, *reasons: str) -> None:
        """Wait until the namespace's pods have events of these reasons."""

        async def look() -> set[str]:
            return {event["reason"] for event in await self.cluster.items(f"{self.path}/events")}

        await eventually(
            look,
            lambda seen: seen >= set(reasons),
            within=SCHEDULED_SECONDS,
            what=f"there are events {reasons}",
        )

    async def has_only_the_schedulers_events(self) -> None:
        """Assert that the service and its extender reported no event of the namespace's pods."""
        events = await self.cluster.items(f"{self.path}/events")
        reported = [event for event in events if event["reportingComponent"] == SERVICE.controller]
        assert not reported, reported

    async def delete(self, *names: str) -> None:
        """Delete pods at once."""
        for name in names:
            options = {"gracePeriodSeconds": 0}
            await self.cluster.must("DELETE", f"{self.path}/pods/{name}", options)

    async def clear(self) -> None:
        """Delete everything, and wait until it is gone."""
        options = {"gracePeriodSeconds": 0, "propagationPolicy": "Background"}
        for group, resource in _PATHS.values():
            path = f"{group}/namespaces/{self.namespace}/{resource}"
            await self.cluster.must("DELETE", path, options)
        await eventually(
            self.pods, lambda pods: not pods, within=SCHEDULED_SECONDS, what="all pods are gone"
        )

    async def agrees(self, service: Service | None = None) -> Usage:
        """Assert that nothing is wrong and that the ledger counts what the oracle does.

        Waits until both are the same, for the ledger observes the end of a pod after it.
        """
        asked = service or self.yard.service
        seen = await eventually(
            lambda: self._compare(asked),
            lambda both: both[0] == both[1],
            within=AGREED_SECONDS,
            what="the cards are used as pods and nodes say",
        )
        wrong = await self.complaints()
        assert not wrong, "\n".join(wrong)
        return seen[0]

    async def complaints(self) -> list[str]:
        """Return the oracle's findings about all pods and nodes of the cluster."""
        pods = await self.cluster.items("/api/v1/pods")
        return placement_oracle.complaints(await self.cluster.items(NODES), pods)

    async def was_always_within_limits(self) -> None:
        """Assert that no card was over a limit at any position of the log."""
        wrong = await card_limits.complaints(self.yard.service, self._folder)
        assert not wrong, "\n".join(wrong)

    async def _compare(self, service: Service) -> tuple[Usage, Usage]:
        listed, cards = await asyncio.gather(
            self.cluster.items("/api/v1/pods"), service.answer("cards")
        )
        counted = {
            (card["node"], card["uuid"]): CardUsage(
                card["used_memory"], card["used_cores"], card["used_slots"]
            )
            for card in cards
        }
        counted = {place: used for place, used in counted.items() if used != CardUsage()}
        return placement_oracle.usage_of(listed), counted


@asynccontextmanager
async def working(yard: SchedulingCluster, folder: Path) -> AsyncIterator[SchedulingTeam]:
    """Make a namespace of its own for the block; all its pods are gone after it."""
    async with connected(yard.plane) as cluster:
        made = SchedulingTeam(yard, cluster, folder)
        await yard.start(cluster)
        await made.open()
        yield made
        yard.stop_schedulers()
        await made.clear()
