"""Aggregated server: the listener of the aggregated API, with a TLS context of its own.

A defect in it ends no other part of the service. All its parts then end, and begin again after a
pause that doubles, without the trust and the cached rights of before.
"""

import asyncio
import contextlib
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
from ledger.runtime.counter_protocol import Count
from ledger.runtime.http import http_server
from ledger.runtime.http.acceptor import AcceptorSettings
from ledger.runtime.http.http_server import Listener
from ledger.runtime.http.token_reviews import TokenGuard
from ledger.runtime.settings.settings import Settings
from ledger.runtime.tls.certificate_authority import CertificateError
from ledger.runtime.tls.certificate_reload import Tls
from ledger.tasks.backoff import Backoff

AUTHORITY: Final = "aggregated/front-proxy-ca.crt"
"""File of the store with the CA of the API server's proxy."""

AGAIN_SECONDS: Final = 1.0
AGAIN_SECONDS_MAX: Final = 60.0
STEADY_SECONDS: Final = 300.0
"""After serving for longer, the pause before the next attempt is the shortest one."""

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
        count: Count,
    ) -> None:
        """Serve the routes below `/v1/` on a bound socket, which `run` closes.

        `count` counts defects.
        """
        self._settings, self._routes, self._count = settings, routes, count
        self._listener: Listener | None = listener
        self._address = listener.address
        self._cluster_tasks, self._certificates = cluster_tasks, certificates

    async def run(self, stop: asyncio.Event) -> None:
        """Serve until `stop` is set, and requests in flight are answered. No error is raised."""
        backoff = Backoff(AGAIN_SECONDS, AGAIN_SECONDS_MAX)
        clock = asyncio.get_running_loop().time
        while not stop.is_set():
            began = clock()
            try:
                await self._serve(stop)
            except Exception:  # noqa: BLE001 - a defect may cost this API, not the service
                if clock() - began > STEADY_SECONDS:
                    backoff.reset()
                self._count("aggregated_failures_total")
                _log.exception("aggregated_api_failed", again_in_seconds=backoff.seconds)
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(stop.wait(), backoff.next_pause())

    async def _serve(self, stop: asyncio.Event) -> None:
        """Serve with new parts until `stop` is set. Raises ExceptionGroup for their errors."""
        listener, self._listener = self._listener, None
        if listener is None:
            listener = http_server.bind(self._address, "aggregated_listen")
        settings, client = self._settings, self._cluster_tasks.client
        with contextlib.closing(listener):
            tls = Tls(lambda: self._certificates.files)
            proxy = FrontProxy(client, tls, file=Path(settings.store_dir) / AUTHORITY)
            registration = AggregatedRegistration(client, self._cluster_tasks.is_active)
            serving = http_server.serve(
                self._api(proxy),
                listener,
                stop,
                tls=tls,
                accepting=AcceptorSettings(
                    settings.connections_max, settings.connections_uncertified_max
                ),
                started=lambda: _log.info("serving_aggregated", address=self._address),
            )
            await _until_done(
                serving,
                proxy.run(),
                tls.keep_fresh(
                    _report_certificate, is_trusted=lambda: _is_trusted(registration, settings)
                ),
                registration.run(lambda: service_certificate.authority(settings)),
            )

    def _api(self, proxy: FrontProxy) -> AggregatedApi:
        guard: TokenGuard[Subject] = TokenGuard(QueryGroupReviewer(self._cluster_tasks.reviewer))
        return AggregatedApi(
            self._routes, guard=guard, trust=proxy.trust, cluster=self._settings.cluster
        )


def _is_trusted(registration: AggregatedRegistration, settings: Settings) -> bool:
    """Return whether the API server may meet the certificates in the files now."""
    try:
        return registration.is_trusted(service_certificate.authority(settings))
    except CertificateError:
        return True  # loading the files reports the problem


async def _until_done(work: Coroutine[Any, Any, None], *beside: Coroutine[Any, Any, None]) -> None:
    """Run everything until `work` ends. Raises ExceptionGroup with the first error of any."""
    async with asyncio.TaskGroup() as tasks:
        others = [tasks.create_task(each) for each in beside]
        await tasks.create_task(work)
        for other in others:
            other.cancel()


def _report_certificate(problem: str) -> None:
    _log.error("certificate_unusable", reason=problem)
