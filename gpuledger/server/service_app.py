"""Service app: HTTP routes of admission, extender, queries, explain and probes, with guards."""

from functools import partial
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.routing import BaseRoute, Route
from starlette.types import ASGIApp

from gpuledger.server.cluster_tasks import ClusterTasks
from gpuledger.server.endpoints.live_answers import LiveAnswers
from gpuledger.server.endpoints.live_offers import LiveOffers
from gpuledger.server.extender_in_service import ServiceExtender
from gpuledger.server.ledger_replica import LedgerReplica
from gpuledger.server.pages.service_pages import ServicePages
from gpuledger.server.readiness_checks import ReadinessChecks
from gpuledger.server.service_metrics import ServiceMetrics, usage_export
from gpuledger.server.shared_certificate import SharedCertificate
from gpuledger.wiring import admission_from_settings, metrics_token, store_layout
from ledger.log.ledger_port import Ledger
from ledger.runtime.http import direct_endpoints
from ledger.runtime.http.acceptor import CERTIFIED, HANDSHAKES, OTHERS, Acceptor
from ledger.runtime.http.client_certificate_access import ClientCertificateRequired
from ledger.runtime.http.direct_endpoints import DirectEndpoints, Endpoints
from ledger.runtime.http.health import Health
from ledger.runtime.http.json_endpoint import JsonEndpoint
from ledger.runtime.http.loopback_access import LoopbackRequired
from ledger.runtime.http.metrics_access import METRICS, MonitoringAccess
from ledger.runtime.http.token_reviews import TokenGuard
from ledger.runtime.http.v1_access import AccessRequired
from ledger.runtime.metrics import Telemetry
from ledger.runtime.settings.settings import Settings
from ledger.runtime.tls.certificate_reload import Tls
from projections.api import routes as projection_routes
from projections.api.usage_metrics import UsageCollector
from projections.store.readers import Readers
from projections.store.store_writer import StoreError
from webhook import app as admission
from webhook.admission.mutating_webhook import MutatingWebhook
from webhook.admission.validating_webhook import ValidatingWebhook
from webhook.context.admission_settings import AdmissionSettings
from webhook.context.cluster_context import ClusterContext


class ServiceApp:
    """The HTTP application of the service: the ASGI application `app`, and `direct` endpoints.

    `routes` are those of the application, without its guards.
    """

    def __init__(
        self,
        settings: Settings,
        *,
        replica: LedgerReplica,
        cluster_tasks: ClusterTasks | None,
        telemetry: Telemetry,
        health: Health,
        certificates: Tls | None,
        shared: SharedCertificate | None = None,
        reviews: bool = True,
    ) -> None:
        """Connect the parts; without `reviews` this replica answers no reviews."""
        self._settings, self._replica, self._cluster_tasks = settings, replica, cluster_tasks
        self._telemetry = telemetry
        self._readers = Readers(Path(settings.store_dir) / store_layout.PROJECTION)
        self._usage = UsageCollector(self._readers, usage_export(settings, replica.is_active))
        policy = admission_from_settings.admission_settings(settings)
        self._context = self._cluster_context(cluster_tasks)
        ledger = cluster_tasks.ledger if cluster_tasks is not None else replica
        self._validating = ValidatingWebhook(ledger, settings=policy, context=self._context)
        self.service_extender = self._service_extender(ledger) if settings.extender else None
        self._offers = self._live_offers()
        self._guard, self._live = self._token_guard(), self._live_answers()
        self._pages = self._service_pages(certificates)
        endpoints = self._endpoints(policy, reviews=reviews)
        self.routes = self._routes(endpoints, health)
        self.app = self._guarded(Starlette(routes=self.routes))
        self.direct = DirectEndpoints(endpoints, self.app)
        ReadinessChecks(
            settings,
            replica,
            cluster_tasks=cluster_tasks,
            context=self._context,
            extender=self.service_extender,
            certificates=certificates,
            shared=shared,
            reviews=reviews,
        ).add_to(health)
        ServiceMetrics(telemetry, replica, usage=self._usage).add(
            health, certificates, cluster_tasks
        )
        if shared is not None:
            telemetry.read("ca_expiry_timestamp_seconds", lambda: shared.authority_expires_at)

    def watch(self, acceptor: Acceptor) -> None:
        """Count the connections of the server in front."""
        self._telemetry.read("connections_certified", partial(acceptor.count, CERTIFIED))
        self._telemetry.read("connections_others", partial(acceptor.count, OTHERS))
        self._telemetry.read("connections_handshakes", partial(acceptor.count, HANDSHAKES))

    async def close(self) -> None:
        """Close the projection."""
        await self._pages.close()
        await self._readers.close()

    def _routes(self, endpoints: Endpoints, health: Health) -> list[BaseRoute]:
        return [
            *direct_endpoints.routes(endpoints),
            *projection_routes.routes(self._readers, self._offers),
            *self._live.routes(),
            *health.routes(),
            *self._pages.routes(),
            Route(METRICS, self._telemetry.endpoint([self._refresh])),
        ]

    def _cluster_context(self, cluster_tasks: ClusterTasks | None) -> ClusterContext:
        if cluster_tasks is not None:
            return cluster_tasks.context
        return admission_from_settings.cluster_context(self._settings, self._replica)

    def _token_guard(self) -> TokenGuard[Any]:
        cluster_tasks = self._cluster_tasks
        return TokenGuard(cluster_tasks.reviewer if cluster_tasks is not None else None)

    def _service_pages(self, certificates: Tls | None) -> ServicePages:
        return ServicePages(
            self._settings,
            replica=self._replica,
            live=self._live,
            guard=self._guard,
            certificates=certificates,
        )

    def _live_offers(self) -> LiveOffers | None:
        if self._cluster_tasks is None:
            return None
        listed = self._context.resource_claims.slices.listed
        return LiveOffers(
            self._settings.cluster,
            self._cluster_tasks.cards.offered,
            is_listed=listed.is_set,
            position=lambda: self._replica.state.position,
        )

    def _live_answers(self) -> LiveAnswers:
        cluster_tasks = self._cluster_tasks
        return LiveAnswers(
            self._settings,
            replica=self._replica,
            validating=self._validating,
            waiting=cluster_tasks.settlement.waiting_page if cluster_tasks is not None else None,
            offers=self._offers,
        )

    def _endpoints(self, policy: AdmissionSettings, *, reviews: bool) -> Endpoints:
        """Return the endpoints of the direct path: admission and extender, as far as served."""
        endpoints: dict[str, JsonEndpoint[Any, Any]] = {}
        if reviews:
            mutating = MutatingWebhook(policy, self._context)
            endpoints |= admission.endpoints(mutating, self._validating, policy, self._took)
        if self.service_extender is not None:
            endpoints |= self.service_extender.endpoints()
        return endpoints

    def _guarded(self, app: ASGIApp) -> LoopbackRequired | ClientCertificateRequired:
        settings, guard = self._settings, self._guard
        guarded: ASGIApp = AccessRequired(app, guard, cluster=settings.cluster)
        guarded = MonitoringAccess(
            guarded,
            guard,
            subjects=settings.client_subjects if settings.client_ca else None,
            token=metrics_token.token_reader(settings),
        )
        if not settings.client_ca:
            return LoopbackRequired(guarded)
        return ClientCertificateRequired(guarded, settings.client_subjects)

    def _service_extender(self, ledger: Ledger) -> ServiceExtender:
        cluster_tasks = self._cluster_tasks
        service_extender = ServiceExtender(
            self._settings,
            replica=self._replica,
            ledger=ledger,
            cluster=cluster_tasks.cluster if cluster_tasks is not None else None,
            rules=lambda: self._context.rules,
            telemetry=self._telemetry,
        )
        if cluster_tasks is not None:
            cluster_tasks.cards.nodes.set_scores = service_extender.inventory.set_scores
            cluster_tasks.cards.offered.subscribe(service_extender.inventory.set_offered)
            service_extender.slices_listed = self._context.resource_claims.slices.listed
        return service_extender

    def _took(self, webhook: str, seconds: float) -> None:
        self._telemetry.observe("admission_seconds", seconds, webhook)

    async def _refresh(self) -> None:
        """Refresh the gauges before a scrape; keep the last values if the projection is
        unreadable."""
        try:
            await self._usage.refresh()
        except (StoreError, TimeoutError):
            return
