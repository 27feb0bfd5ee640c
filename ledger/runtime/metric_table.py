"""Metric table: name, kind, labels and meaning of every metric that the service counts itself.

Names, kinds, labels and buckets are public API; the reference page is made from `METRICS`. Units
are base units (seconds, bytes, ratios from 0 to 1), and one metric has one unit. Labels have values
of closed sets (reasons, causes, our paths), never names given by users. The usage of quotas and
cards is in `projections/api/usage_metrics.py`.
"""

from enum import StrEnum
from typing import Final

import msgspec

PREFIX: Final = "gpuledger_"


class MetricKind(StrEnum):
    """The kind of a metric: a counter only rises, a gauge is set, a histogram counts by size."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


class Metric(msgspec.Struct, frozen=True):
    """One metric. `name` is without prefix; a histogram's bucket is named by its upper bound.

    `formerly` is an earlier name, also without prefix, of a gauge with the same values, which the
    setting `legacy_metrics` adds.
    """

    name: str
    kind: MetricKind
    help: str
    labels: tuple[str, ...] = ()
    buckets: tuple[float, ...] = ()
    formerly: str = ""

    @property
    def full_name(self) -> str:
        """The name in Prometheus."""
        return PREFIX + self.name


_QUICK: Final = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0, 2.5, 10.0)
_BLOCKED: Final = (0.0005, 0.001, 0.002, 0.003, 0.005, 0.01, 0.025, 0.1, 1.0)
_GROUP: Final = (1.0, 2.0, 5.0, 10.0, 25.0, 50.0, 100.0, 250.0, 500.0, 1000.0)

METRICS: Final = (
    Metric("build_info", MetricKind.GAUGE, "1, labelled with the version that runs.", ("version",)),
    # Admission
    Metric(
        "decisions_total",
        MetricKind.COUNTER,
        "Commands answered by the ledger, by verdict and, for denials, reason.",
        ("verdict", "reason"),
    ),
    Metric(
        "admission_seconds",
        MetricKind.HISTOGRAM,
        "Time from a review's arrival to its answer, by webhook.",
        ("webhook",),
        _QUICK,
    ),
    # The log
    Metric(
        "append_seconds",
        MetricKind.HISTOGRAM,
        "Time from sending a record to its acknowledgement.",
        (),
        _QUICK,
    ),
    Metric("group_commands", MetricKind.HISTOGRAM, "Commands answered by one record.", (), _GROUP),
    Metric(
        "log_conflicts_total", MetricKind.COUNTER, "Appends refused because the log had moved on."
    ),
    Metric("log_ambiguous_total", MetricKind.COUNTER, "Appends whose outcome had to be looked up."),
    Metric(
        "contradictions_total",
        MetricKind.COUNTER,
        "Commands refused because their events would contradict the state: a defect.",
    ),
    Metric(
        "log_reachable",
        MetricKind.GAUGE,
        "1 while this process can decide: the log and the link to it work.",
    ),
    Metric(
        "log_writable",
        MetricKind.GAUGE,
        "1 while the log stores records; 0 from a failed append on, until a record is stored.",
    ),
    Metric("log_position", MetricKind.GAUGE, "Last position this process has applied."),
    Metric("log_bytes", MetricKind.GAUGE, "Size of the log, bytes."),
    Metric(
        "log_max_bytes",
        MetricKind.GAUGE,
        "Size at which the log is full, bytes; 0 without one.",
        formerly="log_bytes_max",
    ),
    Metric("queue_commands", MetricKind.GAUGE, "Commands that wait for the writer."),
    Metric("refusals_dropped_total", MetricKind.COUNTER, "Denials that could not be stored."),
    Metric("snapshot_position", MetricKind.GAUGE, "Position of this replica's newest snapshot."),
    Metric("snapshot_timestamp_seconds", MetricKind.GAUGE, "Unix time of the newest snapshot."),
    Metric(
        "scrub_position",
        MetricKind.GAUGE,
        "Position up to which the last complete scrub of this replica found the log intact.",
    ),
    Metric(
        "scrub_timestamp_seconds",
        MetricKind.GAUGE,
        "Unix time of the end of that scrub; 0 before the first one since the start.",
    ),
    Metric("owner", MetricKind.GAUGE, "1 while this process is the preferred writer of its shard."),
    Metric(
        "settler",
        MetricKind.GAUGE,
        "1 while this process settles its cluster, and lists its quotas and cards.",
    ),
    Metric(
        "durability_degraded",
        MetricKind.GAUGE,
        "1 while an acknowledged record might not survive a power cut.",
    ),
    # The process
    Metric("ready", MetricKind.GAUGE, "1 while /readyz answers 200."),
    Metric(
        "loop_blocked_seconds",
        MetricKind.HISTOGRAM,
        "Time for which deciding one group held the event loop.",
        (),
        _BLOCKED,
    ),
    Metric(
        "loop_blocked_max_seconds",
        MetricKind.GAUGE,
        "Longest of these since the start.",
        formerly="loop_blocked_seconds_max",
    ),
    Metric(
        "certificate_expiry_timestamp_seconds",
        MetricKind.GAUGE,
        "End of the served certificate, Unix time; 0 without one.",
    ),
    Metric(
        "ca_expiry_timestamp_seconds",
        MetricKind.GAUGE,
        "End of the shared CA, Unix time; 0 without one.",
    ),
    Metric(
        "connections_certified",
        MetricKind.GAUGE,
        "Open connections of clients with a certificate that may send reviews.",
    ),
    Metric("connections_others", MetricKind.GAUGE, "Open connections of all other clients."),
    Metric(
        "connections_handshakes",
        MetricKind.GAUGE,
        "Connections that have not ended their TLS handshake.",
    ),
    Metric(
        "connections_dropped_total",
        MetricKind.COUNTER,
        "Connections that were closed for others or found no room, by pool: certified, others or"
        " handshakes.",
        ("pool",),
    ),
    # Settlement
    Metric("holds_open", MetricKind.GAUGE, "Holds that are neither committed nor released."),
    Metric(
        "drift_total",
        MetricKind.COUNTER,
        "Differences between cluster and ledger that were corrected, by cause.",
        ("cause",),
    ),
    Metric(
        "watch_failures_total",
        MetricKind.COUNTER,
        "Objects and lists of a watch that could not be processed, by watch: a defect.",
        ("watch",),
    ),
    Metric(
        "labels_unread_total",
        MetricKind.COUNTER,
        "Objects charged with a digest of their labels, because quotas select by too many labels.",
    ),
    Metric("settle_committed_total", MetricKind.COUNTER, "Holds whose object was observed."),
    Metric(
        "settle_released_total",
        MetricKind.COUNTER,
        "Holds and charges that ended, by cause.",
        ("cause",),
    ),
    Metric(
        "settle_lists_total", MetricKind.COUNTER, "Linearizable lists for absence proofs of holds."
    ),
    Metric(
        "settle_failures_total",
        MetricKind.COUNTER,
        "Of these, lists that failed and prove nothing.",
    ),
    Metric(
        "quotas_not_understood",
        MetricKind.GAUGE,
        "Quotas with limits that do not apply as written.",
    ),
    Metric(
        "objects_not_understood",
        MetricKind.GAUGE,
        "Objects with invalid requests, which are not charged.",
    ),
    Metric(
        "controllers_not_believed",
        MetricKind.GAUGE,
        "Users that created objects of a controller, or resource claims of pods, in the last hour"
        " and are not configured to; these objects count in addition to their owner.",
    ),
    Metric(
        "allocators_refused",
        MetricKind.GAUGE,
        "Accounts with the rights of HAMi that were refused its annotations in the last hour and"
        " are not among the trusted identities.",
    ),
    Metric(
        "resource_claims_unused",
        MetricKind.GAUGE,
        "Charged resource claims without owner, pod and device for 24 hours or longer.",
    ),
    Metric(
        "resource_claims_unnamed",
        MetricKind.GAUGE,
        "Resource claims of pods whose status does not name them yet.",
    ),
    Metric(
        "resource_claims_alone_total",
        MetricKind.COUNTER,
        "Resource claims of pods that are charged on their own, because no pod named them in time.",
    ),
    Metric("pods_waiting", MetricKind.GAUGE, "Pods that wait behind the scheduling gate for room."),
    Metric(
        "pods_waiting_max_seconds",
        MetricKind.GAUGE,
        "Age of the oldest of these pods.",
        formerly="pods_waiting_seconds_max",
    ),
    Metric(
        "status_writes_total",
        MetricKind.COUNTER,
        "Writes of the status of quotas and policies: done, in conflict with another write, or"
        " failed.",
        ("resource", "outcome"),
    ),
    Metric(
        "events_dropped_total",
        MetricKind.COUNTER,
        "Events of pods that were not written, by the part of the service that reports them and by"
        " cause: too many waited (full), or the API server refused them (refused).",
        ("source", "cause"),
    ),
    # Context of a request
    Metric("owners_known", MetricKind.GAUGE, "Cached owners of pods."),
    Metric(
        "owners_turned_away_total",
        MetricKind.COUNTER,
        "Owners that found no room and are read from the API server at every review.",
    ),
    Metric(
        "aggregated_failures_total",
        MetricKind.COUNTER,
        "Unexpected ends of the aggregated API, which then begins again: a defect.",
    ),
    # Scheduling
    Metric(
        "extender_seconds",
        MetricKind.HISTOGRAM,
        "Time from a scheduler's request to its answer, by verb.",
        ("verb",),
        _QUICK,
    ),
    Metric(
        "extender_answers_total",
        MetricKind.COUNTER,
        "Answers to the scheduler, by verb and outcome; a bind that is lost had been filtered on"
        " what was no more so.",
        ("verb", "outcome"),
    ),
    Metric("scheduler_wakeups_total", MetricKind.COUNTER, "Wake-ups of the scheduler for pods."),
    Metric("extender_guesses", MetricKind.GAUGE, "Pods that are probably on their way to a node."),
    Metric(
        "hints_refused_total",
        MetricKind.COUNTER,
        "Hints of other extenders that were refused because they cannot be true.",
    ),
    Metric("extender_nodes", MetricKind.GAUGE, "Nodes whose cards the extender has read."),
    Metric(
        "extender_reloads_total",
        MetricKind.COUNTER,
        "Reloads of the extender's cards, because they did not follow from the log.",
        formerly="extender_reloads",
    ),
    Metric(
        "preemptions_total",
        MetricKind.COUNTER,
        "Tries to make room for a pod by evicting others, by outcome.",
        ("outcome",),
    ),
    Metric("pods_preempted_total", MetricKind.COUNTER, "Pods that were evicted for others."),
    Metric(
        "placements_undone_total",
        MetricKind.COUNTER,
        "Placements released because no Binding appeared in time.",
    ),
    Metric(
        "nodes_not_understood",
        MetricKind.GAUGE,
        "Nodes whose announcement of cards cannot be read; what was known of them stays.",
    ),
    Metric(
        "pods_astray",
        MetricKind.GAUGE,
        "Pods that run on cards which no node announces, or whose annotations make no sense.",
    ),
    Metric("placements_unbound", MetricKind.GAUGE, "Placements that are not known to be bound."),
    Metric(
        "placement_drift_total",
        MetricKind.COUNTER,
        "Pods whose annotations differ from the ledger, and cards that two mechanisms gave away,"
        " by the difference.",
        ("kind",),
    ),
    Metric(
        "cards_overlapping",
        MetricKind.GAUGE,
        "Cards of ResourceSlices with placed pods, and cards with allocations beyond their size.",
    ),
    Metric(
        "node_locks_cleared_total",
        MetricKind.COUNTER,
        "Stale locks of nodes that were cleared.",
    ),
    # The read side
    Metric(
        "projection_lag_records", MetricKind.GAUGE, "Records of the log not yet in the projection."
    ),
)
