"""Service metrics other than those of the writer: gauges that a scrape reads."""

from collections import Counter
from collections.abc import Callable

from gpuledger.server.cluster_tasks import ClusterTasks
from gpuledger.server.ledger_replica import LedgerReplica
from gpuledger.version import VERSION
from gpuledger.wiring.demand_rules_from_settings import demand_rules
from ledger.core.model.events import Committed, Released, Reserved
from ledger.kube.quotas.line_measures import line_measures
from ledger.log.records import Record
from ledger.runtime.http.health import Health
from ledger.runtime.metrics import Telemetry
from ledger.runtime.settings.settings import Settings
from ledger.runtime.tls.certificate_reload import Tls
from projections.api.usage_metrics import UsageCollector, UsageExport


class ServiceMetrics:
    """Adds the gauges and counters of one replica to its metrics."""

    def __init__(
        self, telemetry: Telemetry, replica: LedgerReplica, *, usage: UsageCollector
    ) -> None:
        self._telemetry, self._replica, self._usage = telemetry, replica, usage

    def add(
        self, health: Health, certificates: Tls | None, cluster_tasks: ClusterTasks | None
    ) -> None:
        """Add the metrics of all parts that this replica has."""
        telemetry, replica = self._telemetry, self._replica
        telemetry.read("ready", health.is_ready)
        telemetry.set("build_info", 1, VERSION)
        telemetry.register(self._usage)
        telemetry.read("log_reachable", lambda: replica.unavailable_reason() is None)
        telemetry.read("log_writable", lambda: replica.writer is None or replica.writer.is_writable)
        telemetry.read("log_position", lambda: replica.state.position)
        telemetry.read("log_bytes", lambda: _extent(replica)[0])
        telemetry.read("log_max_bytes", lambda: _extent(replica)[1])
        telemetry.read("queue_commands", lambda: replica.writer.waiting if replica.writer else 0)
        telemetry.read("owner", replica.is_owner)
        telemetry.read("settler", replica.is_active)
        telemetry.read("snapshot_position", lambda: replica.snapshot.position)
        telemetry.read("snapshot_timestamp_seconds", lambda: replica.snapshot.taken)
        telemetry.read("scrub_position", lambda: replica.scrub.position)
        telemetry.read("scrub_timestamp_seconds", lambda: replica.scrub.ended)
        telemetry.read("durability_degraded", self._degraded)
        telemetry.read("projection_lag_records", self._lag)
        if certificates is not None:
            telemetry.read("certificate_expiry_timestamp_seconds", lambda: certificates.expires_at)
        if cluster_tasks is not None:
            self._add_cluster(cluster_tasks)
        replica.subscribe(self._on_record)

    def _add_cluster(self, cluster_tasks: ClusterTasks) -> None:
        context, settlement = cluster_tasks.context, cluster_tasks.settlement
        telemetry, parents = self._telemetry, context.parents
        telemetry.read("holds_open", lambda: settlement.open_attempts)
        unrecognized = context.owner_chains.unrecognized_controllers
        telemetry.read("controllers_not_believed", lambda: len(unrecognized))
        refused = context.refused_hami_accounts
        telemetry.read("allocators_refused", lambda: len(refused))
        telemetry.read("objects_not_understood", lambda: settlement.invalid_objects)
        telemetry.read("quotas_not_understood", lambda: settlement.quotas_with_warnings)
        telemetry.read("resource_claims_unused", lambda: settlement.unused_claims)
        telemetry.read("resource_claims_unnamed", lambda: settlement.unnamed_claims)
        telemetry.read("pods_waiting", lambda: settlement.waiting)
        telemetry.read("pods_waiting_max_seconds", lambda: settlement.waiting_seconds_max)
        telemetry.read("owners_known", lambda: len(parents))
        parents.on_rejected = lambda: telemetry.count("owners_turned_away_total")
        cards = cluster_tasks.cards
        telemetry.read("nodes_not_understood", lambda: cards.nodes.not_understood)
        telemetry.read("pods_astray", lambda: cards.unaccounted)
        telemetry.read("placements_unbound", lambda: cards.unbound)
        telemetry.read("cards_overlapping", lambda: cards.overlapping)

    def _degraded(self) -> float:
        durability = self._replica.durability
        return float(durability is None or bool(durability.problems))

    def _lag(self) -> float:
        return max(0, self._replica.state.position - self._usage.position)

    def _on_record(self, record: Record) -> None:
        """Count the ends of holds by their events."""
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


def usage_export(settings: Settings, is_active: Callable[[], bool]) -> UsageExport:
    """Return the quotas and cards to list while `is_active` is true: this replica settles.

    Of several clusters on one log, each lists its own quotas and cards, and the authority of
    universe quotas those as well. Without Kubernetes all are listed. Raises as `demand_rules`.
    """
    return UsageExport(
        measures=line_measures(demand_rules(settings)),
        cluster=settings.cluster if settings.kubernetes else "",
        shared=settings.universe_authority,
        is_active=is_active,
        legacy=settings.legacy_metrics,
    )


def _extent(replica: LedgerReplica) -> tuple[int, int]:
    writer = replica.writer
    return (
        (writer.capacity.extent.size, writer.capacity.extent.size_max)
        if writer is not None
        else (0, 0)
    )
