"""A cluster that schedules: control plane, kwok's nodes, a log, extenders and kube-schedulers."""

import asyncio
import itertools
import ssl
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Final

import aiohttp
import pytest
from support.servers.nats_servers import NatsServer

from tests.e2e.harness.bootstrap import (
    grant_service,
    kinds_are_served,
    make_canary,
    webhooks_are_in_effect,
)
from tests.e2e.harness.cluster import Cluster
from tests.e2e.harness.controlplane import ADMIN, SCHEDULER, SERVICE, ControlPlane
from tests.e2e.harness.processes import Child
from tests.e2e.harness.service import COMMAND, Service
from tests.e2e.objects.rights import PREEMPTION, RIGHTS
from tests.e2e.scheduling.support import kwok
from tests.e2e.scheduling.support.scheduler import (
    DEFAULT_PROFILE,
    PROFILE,
    PROGRAM,
    Extender,
    Scheduler,
)

CONNECTIONS_MAX: Final = 64
SETTLE_SECONDS: Final = 5
"""Longer than a bind takes on a cluster of a few nodes; a placement that is older is undone."""


class ExtenderService(Service):
    """`gpuledger extender`: the verbs of the extender, without admission."""

    def start(self) -> None:
        """Start it and return at once."""
        assert self._child is None, "the extender runs already"
        arguments = [
            f"--store-dir={self._store}",
            f"--listen={self._listen}",
            f"--kubeconfig={self._kubeconfig}",
        ]
        command = [str(COMMAND), "extender", *arguments]
        self._child = Child("gpuledger extender", command, self._log, self._env)

    def wait_ready(self) -> None:
        """Return when the service reports that it is ready."""
        assert self._child is not None, "the extender does not run"
        self._child.wait_healthy(f"https://{self.address}/readyz", self.authority, 60.0)


class SchedulingCluster:
    """Everything that runs, and what else can be started beside it.

    `service` is `gpuledger serve`, whose webhooks are in effect. All that is started is ended with
    the yard.
    """

    def __init__(
        self,
        assets: Path,
        folder: Path,
        cluster: Cluster,
        plane: ControlPlane,
        settings: dict[str, str],
    ) -> None:
        """Prepare it; `settings` are those of its services."""
        self._settings = settings
        self.plane = plane
        self.cluster = cluster
        self.nats = NatsServer(folder / "nats")
        self.service = self._service(Service, folder / "serve")
        self._assets = assets
        self._folder = folder
        self._services: list[Service] = [self.service]
        self._schedulers: list[Scheduler] = []
        self._numbers = itertools.count(1)

    async def start(self, cluster: Cluster) -> None:
        """Start log and service where they do not run, and wait until the webhooks are in effect.

        A test that left one of them down does not spoil the next one.
        """
        if self.nats.process is None or self.nats.process.poll() is not None:
            await self.nats.start()
        if not self.service.runs:
            await self.service.run_again()
        await webhooks_are_in_effect(cluster)

    async def extender(
        self, kubeconfig: Path | None = None, kind: type[Service] = ExtenderService
    ) -> Service:
        """Start another extender on the same log, and return it when it is ready.

        With the kind `Service` it is a whole replica, which registers the webhooks at itself.
        """
        made = self._service(kind, self._folder / f"extender-{next(self._numbers)}", kubeconfig)
        self._services.append(made)
        await made.run_again()
        return made

    async def scheduler(self, service: Service | None = None, profile: str = PROFILE) -> Scheduler:
        """Start a kube-scheduler that asks an extender, the service's own by default."""
        asked = service or self.service
        return await self._scheduler(Extender(asked.address, asked.authority), profile)

    async def standard_scheduler(self) -> Scheduler:
        """Start the kube-scheduler that every cluster has, which asks no extender."""
        return await self._scheduler(None, DEFAULT_PROFILE)

    def stop_schedulers(self) -> None:
        """End all kube-schedulers, and the extenders that were started besides the service.

        Fails when one of them, or the service, has ended by itself.
        """
        while self._schedulers:
            self._schedulers.pop().stop()
        fallen = [text for service in self._services if (text := service.fall())]
        while len(self._services) > 1:
            service = self._services.pop()
            if service.runs:
                service.stop()
        assert not fallen, "\n".join(fallen)

    def stop(self) -> None:
        """End everything, those that need the others first."""
        self.stop_schedulers()
        try:
            status = self.service.stop() if self.service.runs else 0
            assert status == 0, "SIGTERM ends the service cleanly"
        finally:
            self.nats.stop()

    async def _scheduler(self, extender: Extender | None, profile: str) -> Scheduler:
        folder = self._folder / f"scheduler-{next(self._numbers)}"
        made = Scheduler(self._assets, folder, self.plane.kubeconfig(SCHEDULER))
        self._schedulers.append(made)
        await asyncio.to_thread(made.start, extender, profile)
        return made

    def _service(
        self, kind: type[Service], folder: Path, kubeconfig: Path | None = None
    ) -> Service:
        folder.mkdir()
        return kind(
            folder,
            kubeconfig or self.plane.kubeconfig(SERVICE),
            **self._settings,
            nats=self.nats.url,
            nats_monitor=self.nats.monitor_url,
        )


@asynccontextmanager
async def opened(
    assets: Path, folder: Path, settle: int = SETTLE_SECONDS, **settings: str
) -> AsyncIterator[SchedulingCluster]:
    """Run a yard without nodes for the block; skips the test where its programs are missing.

    `settle` is the bound, in seconds, in the settings of its services, besides other settings.
    """
    missing = [name for name in (kwok.PROGRAM, PROGRAM) if not (assets / name).is_file()]
    if missing:
        pytest.skip(f"{assets} lacks {', '.join(missing)}: no test of scheduling ran")
    async with AsyncExitStack() as stack:
        plane = ControlPlane(assets, folder)
        stack.callback(plane.stop)
        plane.start()
        cluster = await stack.enter_async_context(connected(plane))
        players = kwok.start(assets, folder, plane.kubeconfig(ADMIN))
        stack.callback(players.stop)
        await grant_service(cluster, RIGHTS | PREEMPTION)
        await kinds_are_served(cluster)
        await make_canary(cluster)
        settings |= {"settle_seconds": str(settle)}
        yard = SchedulingCluster(assets, folder, cluster, plane, settings)
        stack.callback(yard.stop)
        await yard.start(cluster)
        yield yard


@asynccontextmanager
async def connected(plane: ControlPlane) -> AsyncIterator[Cluster]:
    """Return the API server as its administrator sees it, for the block."""
    context = ssl.create_default_context(cafile=str(plane.ca))
    connector = aiohttp.TCPConnector(ssl=context, limit=CONNECTIONS_MAX)
    async with aiohttp.ClientSession(connector=connector) as session:
        yield Cluster(session, plane.url, plane.token(ADMIN))
