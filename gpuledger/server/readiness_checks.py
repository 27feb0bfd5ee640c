"""Readiness checks: the checks of /readyz, each with its result and a reason."""

import time
from typing import Final

from gpuledger.server.cluster_tasks import ClusterTasks
from gpuledger.server.extender_in_service import ServiceExtender
from gpuledger.server.ledger_replica import LedgerReplica
from gpuledger.server.shared_certificate import SharedCertificate
from ledger.runtime.http.health import Health
from ledger.runtime.settings.settings import Settings
from ledger.runtime.tls.certificate_reload import Tls
from webhook.context.cluster_context import ClusterContext

LOG_FULL_ALARM: Final = 0.7
"""Part of its maximum size at which the log is reported as filling up."""

CERTIFICATE_ALARM_SECONDS: Final = 7 * 24 * 3600


class ReadinessChecks:
    """The checks of one replica. A check with a reason that passes is a warning."""

    def __init__(
        self,
        settings: Settings,
        replica: LedgerReplica,
        *,
        cluster_tasks: ClusterTasks | None,
        context: ClusterContext,
        extender: ServiceExtender | None,
        certificates: Tls | None,
        shared: SharedCertificate | None,
        reviews: bool,
    ) -> None:
        """Check these parts; without `reviews` this replica answers no reviews."""
        self._settings, self._replica, self._cluster_tasks = settings, replica, cluster_tasks
        self._context, self._extender = context, extender
        self._certificates, self._shared, self._reviews = certificates, shared, reviews

    def add_to(self, health: Health) -> None:
        """Add every check under the name that the operating guide explains."""
        health.add("ledger", self._check_ledger)
        health.add("log-space", self._check_space)
        health.add("durability", self._check_durability)
        health.add("authentication", self._check_authentication)
        health.add("certificate", self._check_certificate)
        health.add("follower", self._check_follower)
        if self._extender is not None:
            health.add("extender", self._extender.check)
        if self._cluster_tasks is not None:
            health.add("cluster", self._check_cluster)
            health.add("surroundings", self._check_context)
            health.add("settler", self._check_settler)

    def _check_ledger(self) -> tuple[bool, str]:
        reason = self._replica.unavailable_reason()
        return reason is None, reason or ""

    def _check_space(self) -> tuple[bool, str]:
        writer = self._replica.writer
        if writer is None or not writer.capacity.extent.size_max:
            return True, ""
        share = writer.capacity.extent.size / writer.capacity.extent.size_max
        if share < LOG_FULL_ALARM:
            return True, ""
        full = f"the log is {share:.0%} full"
        if not writer.capacity.reaches_reserve(0):
            return True, f"{full}: raise log_bytes_max before it refuses to admit"
        return True, f"{full}: no new object is admitted (LogFull) until log_bytes_max is raised"

    def _check_durability(self) -> tuple[bool, str]:
        durability = self._replica.durability
        if durability is None:
            return not self._settings.production, "not checked yet"
        return not (durability.problems and self._settings.production), "; ".join(
            durability.problems
        )

    def _check_authentication(self) -> tuple[bool, str]:
        missing = []
        if self._reviews and not self._settings.client_ca:
            missing.append("no client_ca: any client that reaches the port can send reviews")
        if self._cluster_tasks is None:
            missing.append("no cluster: /v1 answers loopback only")
        if self._settings.plain_http:
            missing.append("plain_http: requests and tokens are not encrypted")
        return not (missing and self._settings.production), "; ".join(missing)

    def _check_certificate(self) -> tuple[bool, str]:
        if self._certificates is None:
            return True, ""
        left = self._certificates.expires_at - time.time()
        unread = self._shared.problem if self._shared is not None else ""
        if left > CERTIFICATE_ALARM_SECONDS:
            return True, unread
        ending = f"the certificate ends in {left / 86_400:.1f} days: renew it"
        return left > 0, "; ".join(filter(None, (ending, unread)))

    def _check_follower(self) -> tuple[bool, str]:
        follower = self._replica.follower
        restarts = follower.restarts if follower is not None else 0
        return True, f"the projection's process was started again {restarts} times" * bool(restarts)

    def _check_cluster(self) -> tuple[bool, str]:
        assert self._cluster_tasks is not None
        problems = self._cluster_tasks.problems()
        return not problems, "; ".join([*problems, *self._cluster_tasks.warnings()])

    def _check_settler(self) -> tuple[bool, str]:
        settler = self._replica.settler
        if settler is None or settler.owner is not None:
            return True, ""
        return True, (
            f"no replica is known to settle cluster {self._settings.cluster}: holds stay open"
            " until one does"
        )

    def _check_context(self) -> tuple[bool, str]:
        """Only warn, because reviews read unknown objects from the API server."""
        assert self._cluster_tasks is not None
        unheard = [
            *self._cluster_tasks.settlement.warnings(),
            *self._cluster_tasks.cards.warnings(),
        ]
        return True, "; ".join([*self._context.problems(), *unheard])
