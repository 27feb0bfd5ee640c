"""A control plane of one test file, on which services run one after the other."""

from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Final, cast

from tests.e2e.harness.bootstrap import (
    grant_service,
    kinds_are_served,
    make_canary,
    webhooks_are_in_effect,
)
from tests.e2e.harness.cluster import Cluster
from tests.e2e.harness.controlplane import CONTROLLERS, ControlPlane
from tests.e2e.harness.second_webhook import SecondWebhook
from tests.e2e.harness.service import Service
from tests.e2e.objects.rights import RIGHTS
from tests.e2e.objects.team import Team

_NO_WEBHOOK: Final = cast("SecondWebhook", None)
"""No second webhook is registered here."""


@contextmanager
def control_plane(
    assets: Path,
    folder: Path,
    controllers: str = CONTROLLERS,
    *,
    api_server_flags: Sequence[str] = (),
) -> Iterator[ControlPlane]:
    """Run a control plane; with `controllers`, every controller acts as that user."""
    running = ControlPlane(assets, folder, controllers, api_server_flags=api_server_flags)
    running.start()
    try:
        yield running
    finally:
        running.stop()


async def prepare(cluster: Cluster) -> None:
    """Give the service its rights and wait until its kinds are served."""
    await grant_service(cluster, RIGHTS)
    await kinds_are_served(cluster)
    await make_canary(cluster)


@asynccontextmanager
async def running(service: Service, cluster: Cluster) -> AsyncIterator[Service]:
    """Run a service; begin when the API server asks it."""
    await service.run_again()
    try:
        await webhooks_are_in_effect(cluster)
        yield service
    finally:
        service.stop()


async def team_of(cluster: Cluster, service: Service, namespace: str, **hard: str) -> Team:
    """Return a namespace, which is made if limits are given."""
    team = Team(namespace, cluster, service, _NO_WEBHOOK)
    if hard:
        made = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}
        await cluster.must("POST", "/api/v1/namespaces", made)
        await team.limit(hard)
    return team
