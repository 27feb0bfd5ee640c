"""Service app: HTTP routes of admission, extender, queries, explain and probes, with guards."""

import asyncio
from functools import partial
from pathlib import Path
from typing import Any, Final

import msgspec
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp

from gpuledger.server import metrics_token
from gpuledger.server.cluster_side import ClusterSide
from gpuledger.server.extender_server import ExtenderServer
from gpuledger.server.readiness_checks import ReadinessChecks
from gpuledger.server.replica import LedgerReplica
from gpuledger.server.service_metrics import ServiceMetrics
from gpuledger.wiring import service_parts
from ledger.log.ledger import Ledger
from ledger.runtime.http.acceptor import CERTIFIED, HANDSHAKES, OTHERS, Acceptor
from ledger.runtime.http.authorization import AccessRequired
from ledger.runtime.http.health import Health
from ledger.runtime.http.json_endpoint import (
    BodyBudget,
    BudgetShare,
    ClientGone,
    RequestRefused,
    read_body,
)
from ledger.runtime.http.metrics_access import METRICS, MonitoringAccess
from ledger.runtime.http.request_guards import ClientCertificateRequired, LoopbackRequired
from ledger.runtime.http.token_reviews import TokenGuard
from ledger.runtime.metrics import Telemetry
from ledger.runtime.settings.settings import Settings
from ledger.runtime.tls.reloading_context import Tls
from projections.api import routes as projection_routes
from projections.api.usage_metrics import UsageCollector
from projections.store.readers import Readers
from projections.store.store_writer import StoreError
from webhook import app as admission
from webhook.admission.explanation import Explanation, NamespaceMissing, OtherNamespace, explain
from webhook.admission.mutating_webhook import MutatingWebhook
from webhook.admission.validating_webhook import ValidatingWebhook
from webhook.api.admission_review import BadReview

EXPLAINED_MAX: Final = 4
"""Number of explain requests of the largest size in memory at once, apart from reviews."""


class ServiceApp:
    """The HTTP application of the service; `app` is the ASGI application."""

    def __init__(
        self,
        settings: Settings,
        *,
        replica: LedgerReplica,
        cluster_side: ClusterSide | None,
        telemetry: Telemetry,
        health: Health,
        certificates: Tls | None,
        reviews: bool = True,
    ) -> None:
        """Connect the parts; without `reviews` this replica answers no reviews."""
        self._settings, self._replica, self._cluster_side = settings, replica, cluster_side
        self._telemetry = telemetry
        self._readers = Readers(Path(settings.store_dir) / service_parts.PROJECTION)
        self._usage = UsageCollector(self._readers)
        self._explaining = BodyBudget(EXPLAINED_MAX * settings.review_bytes_max)
        policy = service_parts.admission_settings(settings)
        if cluster_side is not None:
            self._context = cluster_side.context
        else:
            self._context = service_parts.cluster_context(settings, replica)
        ledger = cluster_side.ledger if cluster_side is not None else replica
        self._validating = ValidatingWebhook(ledger, settings=policy, context=self._context)
        mutating = MutatingWebhook(policy, self._context)
        self.extender_server = self._extender_server_of(ledger) if settings.extender else None
        routes = [
            *(admission.routes(mutating, self._validating, policy, self._took) if reviews else ()),
            *(self.extender_server.routes() if self.extender_server is not None else ()),
            *projection_routes.routes(self._readers),
            Route("/v1/explain", self._explain, methods=["POST"]),
            *health.routes(),
            Route(METRICS, telemetry.endpoint([self._refresh])),
        ]
        self.app = self._guarded(Starlette(routes=routes))
        ReadinessChecks(
            settings,
            replica,
            cluster_side=cluster_side,
            context=self._context,
            extender=self.extender_server,
            certificates=certificates,
            reviews=reviews,
        ).add_to(health)
        ServiceMetrics(telemetry, replica, usage=self._usage).add(
            health, certificates, cluster_side
        )

    def watch(self, acceptor: Acceptor) -> None:
        """Count the connections of the server in front."""
        self._telemetry.read("connections_certified", partial(acceptor.count, CERTIFIED))
        self._telemetry.read("connections_others", partial(acceptor.count, OTHERS))
        self._telemetry.read("connections_handshakes", partial(acceptor.count, HANDSHAKES))

    async def close(self) -> None:
        """Close the projection."""
        await self._readers.close()

    def _guarded(self, app: ASGIApp) -> ASGIApp:
        reviewer = self._cluster_side.reviewer if self._cluster_side is not None else None
        guard: TokenGuard[Any] = TokenGuard(reviewer)
        settings = self._settings
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

    def _extender_server_of(self, ledger: Ledger) -> ExtenderServer:
        cluster_side = self._cluster_side
        extender_server = ExtenderServer(
            self._settings,
            replica=self._replica,
            ledger=ledger,
            cluster=cluster_side.cluster if cluster_side is not None else None,
            rules=lambda: self._context.rules,
            telemetry=self._telemetry,
        )
        if cluster_side is not None:
            cluster_side.cards.nodes.set_scores = extender_server.inventory.set_scores
        return extender_server

    async def _explain(self, request: Request) -> Response:
        """Return the answer to a review or a Pod, without a reservation."""
        with self._explaining.holding() as held:
            try:
                explanation = await self._explained(request, held)
            except OtherNamespace as error:
                return _refused(400, str(error), "namespace")
            except NamespaceMissing as error:
                return _refused(404, str(error), "namespace")
            except BadReview as error:
                return _refused(400, error.message, error.field)
            except RequestRefused as refused:
                answer = _refused(refused.status, str(refused), "body")
                answer.raw_headers.extend(refused.headers)
                return answer
            except ClientGone:
                return Response(status_code=400)
        return Response(msgspec.json.encode(explanation), media_type="application/json")

    async def _explained(self, request: Request, held: BudgetShare) -> Explanation:
        seconds = self._settings.admission_deadline_seconds
        until = asyncio.get_running_loop().time() + seconds
        return await explain(
            self._validating,
            await read_body(request.receive, self._settings.review_bytes_max, until, held),
            deadline=seconds,
            username=request.query_params.get("user", ""),
            namespace=request.query_params.get("namespace") or None,
        )

    def _took(self, webhook: str, seconds: float) -> None:
        self._telemetry.observe("admission_seconds", seconds, webhook)

    async def _refresh(self) -> None:
        """Refresh the gauges before a scrape; keep the last values if the projection is
        unreadable."""
        try:
            await self._usage.refresh()
        except (StoreError, TimeoutError):
            return


def _refused(status: int, message: str, field: str) -> Response:
    problem = {"error": {"message": message, "field": field}}
    return Response(msgspec.json.encode(problem), status, media_type="application/json")
