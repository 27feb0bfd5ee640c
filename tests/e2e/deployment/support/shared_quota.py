"""A namespace that two clusters have, and the quota that both together must keep."""

import asyncio
from collections import Counter
from typing import Any, Final

from support.oracles import cluster_oracle
from support.oracles.cluster_oracle import Lines

from tests.e2e.deployment.support.two_clusters import SETTLE_SECONDS, ClusterSite, TwoClusters
from tests.e2e.harness.agreement import BUILTIN, PRODUCT, snapshot_of
from tests.e2e.harness.cluster import Answer, Manifest
from tests.e2e.harness.polling import eventually
from tests.e2e.harness.service import Row
from tests.e2e.objects.pods import MEMORY
from tests.e2e.objects.team import SEEN_SECONDS

KEY: Final = f"limits.{MEMORY}"
SETTLED_SECONDS: Final = SETTLE_SECONDS + 25.0
QUOTAS: Final = f"{PRODUCT}/universeresourcequotas"
GROUP: Final = "group"
"""The label of namespaces by which quotas over both clusters select them."""


class SharedQuota:
    """Namespaces of one name in both clusters, labelled alike and limited together.

    The quota at the hub has the name of the namespaces.
    """

    def __init__(self, sites: TwoClusters, name: str) -> None:
        self.sites = sites
        self.name = name

    async def open(self, limit: int) -> None:
        """Make the namespaces and a quota of `limit` MiB over both; wait until it holds."""
        for site in self.sites.both:
            await make_namespace(site, self.name, group=self.name)
        await self.limit(self.name, limit, namespaceSelector={"matchLabels": {GROUP: self.name}})

    async def limit(self, quota: str, limit: int, **spec: Any) -> None:
        """Make a quota over both clusters of `limit` MiB, and wait until the ledger has it."""
        await self.sites.west.cluster.must("POST", QUOTAS, universe(quota, limit, **spec))
        await self.used_is(0, quota)

    async def limit_at(self, site: ClusterSite, quota: str, limit: int) -> None:
        """Make a ResourceQuota of `limit` MiB at one cluster, and wait until the ledger has it."""
        path = f"/api/v1/namespaces/{self.name}/resourcequotas"
        await site.cluster.must("POST", path, quota_of("v1", "ResourceQuota", quota, limit))
        await self.used_is(0, quota)

    async def used(self, quota: str = "") -> int | None:
        """Return the usage of a quota, by the hub's service, None when there is none."""
        rows = await self.sites.west.service.get("/v1/usage", quota=quota or self.name)
        return next((int(row["used"]) for row in rows if row["resource"] == KEY), None)

    async def used_is(self, amount: int, quota: str = "", *, within: float = SEEN_SECONDS) -> None:
        """Wait until so many MiB are used of a quota."""
        await eventually(
            lambda: self.used(quota),
            lambda seen: seen == amount,
            within=within,
            what=f"{amount} MiB are used of {quota or self.name}",
        )

    async def create(self, site: ClusterSite, resource: str, manifest: Manifest) -> Answer:
        """Create an object in the namespace at one cluster."""
        group = "/api/v1" if resource == "pods" else "/apis/apps/v1"
        path = f"{group}/namespaces/{self.name}/{resource}"
        return await site.cluster.ask("POST", path, manifest)

    async def delete(self, site: ClusterSite, pod: str) -> Answer:
        """Delete a pod at one cluster at once."""
        path = f"/api/v1/namespaces/{self.name}/pods/{pod}"
        return await site.cluster.ask("DELETE", path, {"gracePeriodSeconds": 0})

    async def scale(self, site: ClusterSite, deployment: str, replicas: int) -> Answer:
        """Scale a Deployment at one cluster as kubectl does."""
        path = f"/apis/apps/v1/namespaces/{self.name}/deployments/{deployment}/scale"
        return await site.cluster.patch(path, {"spec": {"replicas": replicas}})

    async def update(self, site: ClusterSite, path: str, change: Manifest) -> Answer:
        """Change the namespace, or an object below it, at one cluster by a merge patch."""
        return await site.cluster.patch(f"/api/v1/namespaces/{self.name}{path}", change)

    async def pods(self, site: ClusterSite) -> list[Manifest]:
        """List the pods at one cluster by a linearizable read."""
        return await site.cluster.items(f"/api/v1/namespaces/{self.name}/pods")

    async def events(self) -> list[Row]:
        """Replay what happened in this namespace at both clusters, oldest first."""
        return await self.sites.west.service.events(self.name)

    async def agrees(self) -> dict[str, Lines]:
        """Wait until the ledger is what both clusters list, with nothing open, and return it."""
        expected, _ = await eventually(
            self._compare,
            lambda seen: seen[0] == seen[1] and not seen[1].get("open"),
            within=SETTLED_SECONDS,
            what=f"the ledger says of {self.name} what both clusters say",
        )
        return expected

    async def _compare(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return the usage by the clusters and the ledger, by cluster, "" for both together."""
        service = self.sites.west.service
        *lines, rows, holds = await asyncio.gather(
            *(lines_of(site, self.sites.west) for site in self.sites.both),
            service.get("/v1/usage"),
            service.get("/v1/holds", namespace=self.name),
        )
        together: Counter[tuple[str, str, str]] = Counter()
        expected: dict[str, Any] = {"": together}
        for site, usage in zip(self.sites.both, lines, strict=True):
            together.update({line: used for line, used in usage.items() if not line[0]})
            expected[site.name] = {line: used for line, used in usage.items() if line[0]}
        said: dict[str, Any] = {cluster: {} for cluster in expected}
        for row in rows:
            line = (row["namespace"], row["quota"], row["resource"])
            said[row["cluster"]][line] = row["used"]
        reserved = sum(row["reserved"] for row in rows)
        if holds or reserved:
            said["open"] = (holds, reserved)
        return expected, said


async def lines_of(site: ClusterSite, authority: ClusterSite) -> Lines:
    """Return the expected usage of one cluster, with quotas of the authority, by the oracle."""
    snapshot = await snapshot_of(site.cluster, place=site.place, workloads=BUILTIN)
    quotas = await authority.cluster.items(QUOTAS)
    return cluster_oracle.lines_of(snapshot._replace(universe=quotas))


async def make_namespace(site: ClusterSite, name: str, **labels: str) -> None:
    """Make a namespace at one cluster."""
    metadata = {"name": name, "labels": labels}
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata}
    await site.cluster.must("POST", "/api/v1/namespaces", namespace)


def universe(name: str, limit: int, **spec: Any) -> Manifest:
    """Return a quota of `limit` MiB over many namespaces."""
    return quota_of("gpuledger.io/v1alpha1", "UniverseResourceQuota", name, limit, **spec)


def quota_of(version: str, kind: str, name: str, limit: int, **spec: Any) -> Manifest:
    """Return a quota of `limit` MiB of either kind."""
    return {
        "apiVersion": version,
        "kind": kind,
        "metadata": {"name": name},
        "spec": {"hard": {KEY: str(limit)}} | spec,
    }
