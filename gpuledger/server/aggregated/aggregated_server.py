"""Aggregated server: the listener of the aggregated API, with a TLS context of its own."""

import asyncio
from collections.abc import Coroutine, Sequence
from pathlib import Path
from typing import Any, Final

import structlog
from starlette.routing import BaseRoute

from gpuledger.server.aggregated.aggregated_api import AggregatedApi, QueryGroupReviewer
from gpuledger.server.aggregated.aggregated_registration import AggregatedRegistration
from gpuledger.server.aggregated.front_proxy import FrontProxy
from gpuledger.server.cluster_tasks import ClusterTasks
from gpuledger.wiring import service_certificate
from ledger.kube.client.access_review import Subject
from ledger.runtime.http import http_server
from ledger.runtime.http.acceptor import AcceptorSettings
from ledger.runtime.http.http_server import Listener
from ledger.runtime.http.token_reviews import TokenGuard
from ledger.runtime.settings.settings import Settings
from ledger.runtime.tls.certificate_reload import Tls

AUTHORITY: Final = "aggregated/front-proxy-ca.crt"
"""File of the store with the CA of the API server's proxy."""

_log: Final = structlog.get_logger("gpuledger")


class AggregatedServer:
    """Serves the aggregated API beside the service, with the same certificate."""

    def __init__(
        self,
        settings: Settings,
        *,
        listener: Listener,
        routes: Sequence[BaseRoute],
        cluster_tasks: ClusterTasks,
        certificates: Tls,
    ) -> None:
        """Serve the routes below `/v1/` on a bound socket, which `run` closes."""
        self._settings, self._listener = settings, listener
        self._tls = Tls(lambda: certificates.files)
        client = cluster_tasks.client
        self._proxy = FrontProxy(client, self._tls, file=Path(settings.store_dir) / AUTHORITY)
        self._registration = AggregatedRegistration(client, cluster_tasks.is_active)
        guard: TokenGuard[Subject] = TokenGuard(QueryGroupReviewer(cluster_tasks.reviewer))
        self._app = AggregatedApi(
            routes, guard=guard, trust=self._proxy.trust, cluster=settings.cluster
        )

    async def run(self, stop: asyncio.Event) -> None:
        """Serve until `stop` is set, and requests in flight are answered."""
        bounds = AcceptorSettings(
            self._settings.connections_max, self._settings.connections_uncertified_max
        )
        serving = http_server.serve(
            self._app,
            self._listener,
            stop,
            tls=self._tls,
            accepting=bounds,
            started=lambda: _log.info("serving_aggregated", address=self._listener.address),
        )
        await _until_done(
            serving,
            self._proxy.run(),
            self._tls.keep_fresh(_report_certificate),
            self._registration.run(lambda: service_certificate.authority(self._settings)),
        )


async def _until_done(work: Coroutine[Any, Any, None], *beside: Coroutine[Any, Any, None]) -> None:
    """Run everything until `work` ends. Raises ExceptionGroup with the first error of any."""
    async with asyncio.TaskGroup() as tasks:
        others = [tasks.create_task(each) for each in beside]
        await tasks.create_task(work)
        for other in others:
            other.cancel()


def _report_certificate(problem: str) -> None:
    _log.error("certificate_unusable", reason=problem)
