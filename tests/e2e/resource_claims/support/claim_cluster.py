"""A cluster with Dynamic Resource Allocation: nodes, slices, kube-scheduler and the ledger."""

from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from pathlib import Path

import pytest

from tests.e2e.harness.bootstrap import (
    grant_service,
    kinds_are_served,
    make_canary,
    webhooks_are_in_effect,
)
from tests.e2e.harness.cluster import Cluster, Manifest
from tests.e2e.harness.controlplane import ADMIN, SCHEDULER, SERVICE, ControlPlane
from tests.e2e.harness.service import Service
from tests.e2e.objects.rights import RIGHTS
from tests.e2e.resource_claims.support import claim_supply
from tests.e2e.resource_claims.support.claim_supply import A100_NODE, H100_NODE
from tests.e2e.scheduling.support import kwok, nodes
from tests.e2e.scheduling.support.scheduler import DEFAULT_PROFILE, PROGRAM, Scheduler
from tests.e2e.scheduling.support.scheduling_cluster import connected


class ClaimCluster:
    """A running control plane with kube-scheduler and `gpuledger serve`."""

    def __init__(self, plane: ControlPlane, cluster: Cluster, service: Service) -> None:
        self.plane = plane
        self.cluster = cluster
        self.service = service

    @contextmanager
    def paused_controllers(self) -> Iterator[None]:
        """Stop kube-controller-manager for the block, so that no claim is made for a pod."""
        manager = self.plane.controller_manager
        assert manager is not None, "the control plane runs"
        manager.pause()
        try:
            yield
        finally:
            manager.resume()

    async def run_service(self) -> None:
        """Start the service where it does not run, and wait until its webhooks are asked."""
        if not self.service.runs:
            await self.service.run_again()
        await webhooks_are_in_effect(self.cluster)


@asynccontextmanager
async def opened(assets: Path, folder: Path, **settings: str) -> AsyncIterator[ClaimCluster]:
    """Run such a cluster for the block, with further settings of the service."""
    missing = [name for name in (kwok.PROGRAM, PROGRAM) if not (assets / name).is_file()]
    if missing:
        pytest.skip(f"{assets} lacks {', '.join(missing)}: no test of resource claims ran")
    async with AsyncExitStack() as stack:
        plane = ControlPlane(assets, folder)
        stack.callback(plane.stop)
        plane.start()
        cluster = await stack.enter_async_context(connected(plane))
        players = kwok.start(assets, folder, plane.kubeconfig(ADMIN))
        stack.callback(players.stop)
        scheduler = Scheduler(assets, folder / "scheduler", plane.kubeconfig(SCHEDULER))
        stack.callback(scheduler.stop)
        scheduler.start(None, DEFAULT_PROFILE)
        await grant_service(cluster, RIGHTS)
        await kinds_are_served(cluster)
        await make_canary(cluster)
        await nodes.make(cluster, [_node(name) for name in (H100_NODE, A100_NODE)])
        await claim_supply.publish(cluster)
        service = Service(folder, plane.kubeconfig(SERVICE), **settings)
        stack.callback(_end, service)
        running = ClaimCluster(plane, cluster, service)
        await running.run_service()
        yield running


def _end(service: Service) -> None:
    status = service.stop() if service.runs else 0
    assert status == 0, "SIGTERM ends the service cleanly"


def _node(name: str) -> Manifest:
    room = {"cpu": "64", "memory": "256Gi", "pods": "250"}
    labels = {"kubernetes.io/hostname": name, "type": "kwok"}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": labels},
        "status": {"capacity": room, "allocatable": room},
    }
