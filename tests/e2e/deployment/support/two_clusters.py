"""Two clusters, each with API servers and a service of its own, on one log behind a link.

The hub's cluster is `west-1`, with the log and the universe quotas; `east-1` is the edge, and its
NATS server reaches the log by a leaf node.
"""

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Final, NamedTuple

import aiohttp
from support.oracles.cluster_oracle import ClusterLabels
from support.servers.leaf_node import DOMAIN, Clusters, clusters
from support.servers.tcp_proxy import TcpProxy

from tests.e2e.harness.bootstrap import (
    grant_service,
    kinds_are_served,
    make_canary,
    webhooks_are_in_effect,
)
from tests.e2e.harness.cluster import Cluster
from tests.e2e.harness.controlplane import ADMIN, SERVICE, ControlPlane
from tests.e2e.harness.service import Service
from tests.e2e.objects.rights import RIGHTS

WEST: Final = ClusterLabels("west-1", "eu-west", {"tier": "prod"})
EAST: Final = ClusterLabels("east-1", "us-east", {"tier": "prod"})

SETTLE_SECONDS: Final = 5
"""Longer than a write takes on a busy machine, also one that has waited for the link."""

CONNECTIONS_MAX: Final = 32


class ClusterSite(NamedTuple):
    """One cluster: what it is called, its control plane and its service."""

    place: ClusterLabels
    plane: ControlPlane
    cluster: Cluster
    service: Service

    @property
    def name(self) -> str:
        """Return the cluster's name in the ledger."""
        return self.place.cluster


class TwoClusters(NamedTuple):
    """Both clusters, the servers of the log, and the link between these."""

    west: ClusterSite
    east: ClusterSite
    nats: Clusters

    @property
    def both(self) -> tuple[ClusterSite, ClusterSite]:
        """Return both clusters, the hub's first."""
        return self.west, self.east

    @property
    def at_the_hub(self) -> dict[str, str]:
        """Return the settings of a service that reaches the log at the hub."""
        return _at_the_hub(self.nats)

    @property
    def link(self) -> TcpProxy:
        """Return the link from the edge to the log."""
        return self.nats.between


@asynccontextmanager
async def running(assets: Path, folder: Path) -> AsyncIterator[TwoClusters]:
    """Run both clusters, their services with webhooks in effect."""
    async with AsyncExitStack() as stack:
        west, east = (folder / place.cluster for place in (WEST, EAST))
        for directory in (west, east):
            directory.mkdir()
        nats = await stack.enter_async_context(clusters(folder))
        hub = _at_the_hub(nats)
        edge = hub | {"nats": nats.edge.url, "nats_domain": DOMAIN, "universe_authority": "false"}
        near = await _site(stack, assets, west, WEST, hub)
        far = await _site(stack, assets, east, EAST, edge)
        # The hub's service makes the streams.
        for site in (near, far):
            await site.service.run_again()
            stack.push_async_callback(_stop, site.service)
        await asyncio.gather(*(webhooks_are_in_effect(site.cluster) for site in (near, far)))
        yield TwoClusters(near, far, nats)


def _at_the_hub(nats: Clusters) -> dict[str, str]:
    return {"nats": nats.hub.url, "nats_monitor": nats.hub.monitor_url}


async def _site(
    stack: AsyncExitStack, assets: Path, folder: Path, place: ClusterLabels, log: dict[str, str]
) -> ClusterSite:
    """Start a control plane and prepare all that its service needs."""
    plane = ControlPlane(assets, folder)
    stack.callback(plane.stop)
    plane.start()
    context = ssl.create_default_context(cafile=str(plane.ca))
    connector = aiohttp.TCPConnector(ssl=context, limit=CONNECTIONS_MAX)
    session = await stack.enter_async_context(aiohttp.ClientSession(connector=connector))
    cluster = Cluster(session, plane.url, plane.token(ADMIN))
    await grant_service(cluster, RIGHTS)
    await kinds_are_served(cluster)
    await make_canary(cluster)
    return ClusterSite(place, plane, cluster, service_at(plane, folder, place, log))


async def _stop(service: Service) -> None:
    """Stop a service while the link goes on."""
    status = await asyncio.to_thread(service.stop) if service.runs else 0
    assert status == 0, "SIGTERM ends the service cleanly"


def service_at(
    plane: ControlPlane, folder: Path, place: ClusterLabels, log: dict[str, str]
) -> Service:
    """Return a service of a cluster with the settings of a place and a log; it is not started."""
    labels = ",".join(f"{key}={value}" for key, value in place.labels.items())
    settings = {
        "cluster": place.cluster,
        "region": place.region,
        "cluster_labels": labels,
        "settle_seconds": str(SETTLE_SECONDS),
    }
    return Service(folder, plane.kubeconfig(SERVICE), **settings, **log)
