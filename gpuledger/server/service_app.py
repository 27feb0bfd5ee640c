"""The HTTP application: admission, reading, explaining, probes and metrics, with their guards."""

import asyncio
import time
from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any, Final

import msgspec
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp

from extender.settlement.card_settlement import CardSettlement
from gpuledger.server import metrics_token
from gpuledger.server.cluster_side import ClusterSide
from gpuledger.server.extender_server import ExtenderServer
from gpuledger.server.replica import LedgerReplica
from gpuledger.version import VERSION
from gpuledger.wiring import service_parts
from ledger.core.model.events import Committed, Released, Reserved
from ledger.log.ledger import Ledger
from ledger.log.records import Record
from ledger.runtime.http import request_body
from ledger.runtime.http.acceptor import CERTIFIED, HANDSHAKES, OTHERS, Acceptor
from ledger.runtime.http.authorization import AccessRequired
from ledger.runtime.http.body_budget import BodyBudget, BudgetShare
from ledger.runtime.http.health import Health
from ledger.runtime.http.metrics_access import METRICS, MonitoringAccess
from ledger.runtime.http.request_body import ClientGone, RequestRefused
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
from webhook.admission.dry_run import Elsewhere, Explanation, NamespaceMissing, explain
from webhook.admission.mutating_webhook import Mutating
from webhook.admission.validating_webhook import Validating
from webhook.api.admission_review import BadReview
from webhook.settlement_controller import Settlement

LOG_FULL_ALARM: Final = 0.7
"""Share of its maximum size from which the log is reported as filling up."""

EXPLAINED_MAX: Final = 4
"""Questions of the largest size that may be in memory at once, apart from what reviews take."""

CERTIFICATE_ALARM_SECONDS: Final = 7 * 24 * 3600


class ServiceApp:
    """Everything that is served over HTTP. `app` is the ASGI application."""

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
        """Wire it; without `reviews` none are answered."""
        self._reviews = reviews
        self._settings, self._replica, self._cluster_side = settings, replica, cluster_side
        self._telemetry, self._certificates = telemetry, certificates
        self._readers = Readers(Path(settings.store_dir) / service_parts.PROJECTION)
        self._usage = UsageCollector(self._readers)
        self._explaining = BodyBudget(EXPLAINED_MAX * settings.review_bytes_max)
        rules, policy = service_parts.demand_rules(settings), service_parts.policy(settings)
        self._surroundings = (
            cluster_side.surroundings
            if cluster_side is not None
            else service_parts.surroundings(settings, replica)
        )
        where = settings.cluster, rules, policy, self._surroundings
        ledger = cluster_side.ledger if cluster_side is not None else replica
        self._validating = Validating(ledger, *where)
        mutating = Mutating(*where)
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
        self._add_checks(health)
        self._add_metrics()

    def watch(self, acceptor: Acceptor) -> None:
        """Count the connections of the server in front."""
        self._telemetry.read("connections_certified", partial(acceptor.count, CERTIFIED))
        self._telemetry.read("connections_others", partial(acceptor.count, OTHERS))
        self._telemetry.read("connections_handshakes", partial(acceptor.count, HANDSHAKES))

    async def close(self) -> None:
        """Let go of the projection."""
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
            token=metrics_token.reading(settings),
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
            rules=lambda: self._surroundings.rules,
            telemetry=self._telemetry,
        )
        if cluster_side is not None:
            cluster_side.cards.nodes.set_scores = extender_server.inventory.set_scores
        return extender_server

    async def _explain(self, request: Request) -> Response:
        """Answer what a review or a Pod would be answered, without reserving anything."""
        with self._explaining.holding() as held:
            try:
                explanation = await self._explained(request, held)
            except Elsewhere as error:
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
            await request_body.read(request.receive, self._settings.review_bytes_max, until, held),
            deadline=seconds,
            username=request.query_params.get("user", ""),
            namespace=request.query_params.get("namespace") or None,
        )

    def _add_checks(self, health: Health) -> None:
        health.add("ledger", self._check_ledger)
        health.add("log-space", self._check_space)
        health.add("durability", self._check_durability)
        health.add("authentication", self._check_authentication)
        health.add("certificate", self._check_certificate)
        health.add("follower", self._check_follower)
        if self.extender_server is not None:
            health.add("extender", self.extender_server.check)
        if self._cluster_side is not None:
            health.add("cluster", self._check_cluster)
            health.add("surroundings", self._check_surroundings)
            health.add("settler", self._check_settler)
        self._telemetry.read("ready", lambda: health.ready().ok)

    def _check_ledger(self) -> tuple[bool, str]:
        reason = self._replica.unavailable_reason()
        return reason is None, reason or ""

    def _check_space(self) -> tuple[bool, str]:
        writer = self._replica.writer
        if writer is None or not writer.space.extent.size_max:
            return True, ""
        share = writer.space.extent.size / writer.space.extent.size_max
        if share < LOG_FULL_ALARM:
            return True, ""
        full = f"the log is {share:.0%} full"
        if not writer.space.is_reserve(0):
            return True, f"{full}: raise log_bytes_max before it refuses to admit"
        return True, f"{full}: nothing new is admitted (LogFull) until log_bytes_max is raised"

    def _check_durability(self) -> tuple[bool, str]:
        found = self._replica.durability
        if found is None:
            return not self._settings.production, "not looked at yet"
        return not (found.problems and self._settings.production), "; ".join(found.problems)

    def _check_authentication(self) -> tuple[bool, str]:
        missing = []
        if self._reviews and not self._settings.client_ca:
            missing.append("no client_ca: anybody who reaches the port can send reviews")
        if self._cluster_side is None:
            missing.append("no cluster: /v1 answers loopback only")
        if self._settings.plain_http:
            missing.append("plain_http: requests and tokens travel in the clear")
        return not (missing and self._settings.production), "; ".join(missing)

    def _check_certificate(self) -> tuple[bool, str]:
        if self._certificates is None:
            return True, ""
        left = self._certificates.expires_at - time.time()
        if left > CERTIFICATE_ALARM_SECONDS:
            return True, ""
        return left > 0, f"the certificate ends in {left / 86_400:.1f} days: renew it"

    def _check_follower(self) -> tuple[bool, str]:
        follower = self._replica.follower
        restarts = follower.restarts if follower is not None else 0
        return True, f"the projection's process was started again {restarts} times" * bool(restarts)

    def _check_cluster(self) -> tuple[bool, str]:
        assert self._cluster_side is not None
        problems = self._cluster_side.problems()
        return not problems, "; ".join(problems)

    def _check_settler(self) -> tuple[bool, str]:
        settler = self._replica.settler
        if settler is None or settler.owner is not None:
            return True, ""
        return True, (
            f"no replica is known to settle cluster {self._settings.cluster}: holds stay open"
            " until one does"
        )

    def _check_surroundings(self) -> tuple[bool, str]:
        """Reviews read through what is not known, so this only warns."""
        assert self._cluster_side is not None
        unheard = [*self._cluster_side.settlement.warnings(), *self._cluster_side.cards.warnings()]
        return True, "; ".join([*self._surroundings.problems(), *unheard])

    def _add_metrics(self) -> None:
        telemetry, replica = self._telemetry, self._replica
        telemetry.set("build_info", 1, VERSION)
        telemetry.register(self._usage)
        telemetry.read("log_reachable", lambda: replica.unavailable_reason() is None)
        telemetry.read("log_writable", lambda: replica.writer is None or replica.writer.is_writable)
        telemetry.read("log_position", lambda: replica.state.position)
        telemetry.read("log_bytes", lambda: _extent(replica)[0])
        telemetry.read("log_bytes_max", lambda: _extent(replica)[1])
        telemetry.read("queue_commands", lambda: replica.writer.waiting if replica.writer else 0)
        telemetry.read("owner", lambda: replica.owner is not None and replica.owner.is_owner)
        telemetry.read("snapshot_position", lambda: replica.snapshot.position)
        telemetry.read("snapshot_timestamp_seconds", lambda: replica.snapshot.taken)
        telemetry.read("durability_degraded", self._degraded)
        telemetry.read("projection_lag_records", self._lag)
        if self._certificates is not None:
            certificates = self._certificates
            telemetry.read("certificate_expiry_timestamp_seconds", lambda: certificates.expires_at)
        if self._cluster_side is not None:
            self._add_cluster_metrics(self._cluster_side.settlement)
            self._add_card_metrics(self._cluster_side.cards)
        replica.subscribe(self._count)

    def _add_cluster_metrics(self, settlement: Settlement) -> None:
        telemetry, parents = self._telemetry, self._surroundings.parents
        telemetry.read("holds_open", lambda: settlement.open_attempts)
        telemetry.read("settler", self._replica.is_active)
        unbelieved = self._surroundings.ancestry.unbelieved
        telemetry.read("controllers_not_believed", lambda: len(unbelieved))
        refused = self._surroundings.refused_allocators
        telemetry.read("allocators_refused", lambda: len(refused))
        telemetry.read("objects_not_understood", lambda: settlement.puzzling)
        telemetry.read("quotas_not_understood", lambda: settlement.odd_quotas)
        telemetry.read("pods_waiting", lambda: settlement.waiting)
        telemetry.read("pods_waiting_seconds_max", lambda: settlement.waiting_seconds_max)
        telemetry.read("owners_known", lambda: len(parents))
        parents.when_turned_away = lambda: telemetry.count("owners_turned_away_total")

    def _add_card_metrics(self, cards: CardSettlement) -> None:
        self._telemetry.read("nodes_not_understood", lambda: cards.nodes.not_understood)
        self._telemetry.read("pods_astray", lambda: cards.astray)
        self._telemetry.read("placements_unbound", lambda: cards.unbound)

    def _took(self, webhook: str, seconds: float) -> None:
        self._telemetry.observe("admission_seconds", seconds, webhook)

    def _degraded(self) -> float:
        found = self._replica.durability
        return float(found is None or bool(found.problems))

    def _lag(self) -> float:
        return max(0, self._replica.state.position - self._usage.position)

    def _count(self, record: Record) -> None:
        """Count how holds end, from the events themselves."""
        released: Counter[str] = Counter()
        for item in record.items:
            event = item.event
            if isinstance(event, Reserved):
                continue
            if isinstance(event, Committed):
                self._telemetry.count("settle_committed_total")
            elif isinstance(event, Released):
                released[str(event.cause)] += 1
        for cause, many in released.items():
            self._telemetry.count("settle_released_total", cause, by=many)

    async def _refresh(self) -> None:
        """Read the projection before a scrape; without one, yesterday's numbers are no lie."""
        try:
            await self._usage.refresh()
        except (StoreError, TimeoutError):
            return


def _refused(status: int, message: str, field: str) -> Response:
    problem = {"error": {"message": message, "field": field}}
    return Response(msgspec.json.encode(problem), status, media_type="application/json")


def _extent(replica: LedgerReplica) -> tuple[int, int]:
    writer = replica.writer
    return (
        (writer.space.extent.size, writer.space.extent.size_max) if writer is not None else (0, 0)
    )
