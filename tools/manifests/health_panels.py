"""Panels of the health of the service: replicas, decisions, log, settlement and scheduling."""

from typing import Final

from tools.manifests.dashboard_panels import (
    BAD_BELOW_1,
    BAD_FROM_1,
    PRESSURE,
    Panel,
    row,
    stat,
)

_JOB: Final = '{job=~"$job"}'
_CANNOT_DECIDE: Final = "Overloaded|LogFull|LedgerUnavailable|LedgerStopped|InternalError"


def _rate(name: str, by: str, selector: str = "") -> str:
    labels = f'{{job=~"$job"{selector}}}'
    total = f"(rate(gpuledger_{name}_total{labels}[$__rate_interval]))"
    return f"sum by ({by}) {total}" if by else f"sum{total}"


def _quantile(quantile: float, name: str, by: str = "") -> str:
    labels = f"le, {by}" if by else "le"
    rates = f"rate(gpuledger_{name}_bucket{_JOB}[$__rate_interval])"
    return f"histogram_quantile({quantile}, sum by ({labels}) ({rates}))"


def _gauge(name: str) -> str:
    return f"gpuledger_{name}{_JOB}"


HEALTH: Final = (
    row("State"),
    stat(
        "Ready replicas",
        "Replicas that decide. Without one, no pod with cards is created.",
        f"sum({_gauge('ready')})",
        bounds=BAD_BELOW_1,
        alerts=("LedgerNotReady", "LedgerAbsent"),
    ),
    stat(
        "Settling replicas",
        "Replicas that settle their cluster and list its quotas and cards: one for each cluster.",
        f"sum({_gauge('settler')})",
        bounds=BAD_BELOW_1,
        alerts=("LedgerNotSettled",),
    ),
    stat(
        "Not durable",
        "Replicas whose acknowledged records might not survive a power cut.",
        f"sum({_gauge('durability_degraded')})",
        bounds=BAD_FROM_1,
        alerts=("LedgerNotDurable",),
    ),
    stat(
        "Log in use",
        "Part of the log's largest size. From 90 % on, no new object is admitted.",
        f"max({_gauge('log_bytes')}) / max({_gauge('log_max_bytes')} > 0)",
        "percentunit",
        bounds=PRESSURE,
        alerts=("LedgerLogFilling", "LedgerLogFull"),
    ),
    stat(
        "Certificate ends in",
        "Time until the end of the served certificate.",
        f"min({_gauge('certificate_expiry_timestamp_seconds')} > 0) - time()",
        "s",
        bounds=("red", (7 * 86_400, "green")),
        alerts=("LedgerCertificateEnding",),
    ),
    stat(
        "Open holds",
        "Holds that are neither committed nor released.",
        f"max({_gauge('holds_open')})",
        alerts=("LedgerHoldsStuck",),
    ),
    row("Decisions"),
    Panel(
        "Answered commands",
        "Commands answered, by verdict.",
        (("{{verdict}}", _rate("decisions", "verdict")),),
        "ops",
    ),
    Panel(
        "Denials for lack of room or invalid requests",
        "The page Reasons of the documentation describes each.",
        (("{{reason}}", _rate("decisions", "reason", f',reason!="",reason!~"{_CANNOT_DECIDE}"')),),
        "ops",
    ),
    Panel(
        "Denials because the ledger cannot decide",
        "Failures of the service or its log. This is empty in good times.",
        (("{{reason}}", _rate("decisions", "reason", f',reason=~"{_CANNOT_DECIDE}"')),),
        "ops",
        alerts=("LedgerDeniesByFailure", "LedgerOverloaded", "LedgerLogFull"),
    ),
    Panel(
        "Time of a review",
        "99 of 100 reviews are answered within this time.",
        (("{{webhook}}", _quantile(0.99, "admission_seconds", "webhook")),),
        "s",
        alerts=("LedgerSlow",),
    ),
    Panel(
        "Time of a decision in the event loop",
        "Time for which deciding a group of commands held the event loop: median, and 99 of 100.",
        (
            ("median", _quantile(0.5, "loop_blocked_seconds")),
            ("99 %", _quantile(0.99, "loop_blocked_seconds")),
        ),
        "s",
    ),
    Panel(
        "Waiting commands",
        "Commands that wait for the writer of a replica.",
        (("{{instance}}", _gauge("queue_commands")),),
        alerts=("LedgerOverloaded",),
    ),
    row("Log"),
    Panel(
        "Time of an append",
        "Median and 99th percentile of the acknowledgement.",
        (
            ("median", _quantile(0.5, "append_seconds")),
            ("99 %", _quantile(0.99, "append_seconds")),
        ),
        "s",
        alerts=("LedgerSlow", "LedgerUnclearAppends"),
    ),
    Panel(
        "Size of the log",
        "Bytes of the log, and the size at which it is full.",
        (
            ("size", f"max({_gauge('log_bytes')})"),
            ("full", f"max({_gauge('log_max_bytes')} > 0)"),
        ),
        "bytes",
        alerts=("LedgerLogFilling",),
    ),
    Panel(
        "Records not yet in the projection",
        "The lag of /v1, of gpuledger usage and of the metrics of quotas and cards.",
        (("{{instance}}", _gauge("projection_lag_records")),),
        alerts=("LedgerProjectionBehind",),
    ),
    row("Settlement and scheduling"),
    Panel(
        "Holds committed and released",
        "Observed objects, and ends by cause.",
        (
            ("committed", _rate("settle_committed", "")),
            ("{{cause}}", _rate("settle_released", "cause")),
        ),
        "ops",
    ),
    Panel(
        "Drift",
        "Corrected differences between cluster and ledger, by cause.",
        (("{{cause}}", _rate("drift", "cause")),),
        "ops",
        alerts=("LedgerDrift", "LedgerLateTruth"),
    ),
    Panel(
        "Not understood",
        "Objects, quotas and nodes that do not count as written.",
        (
            ("objects", f"max({_gauge('objects_not_understood')})"),
            ("quotas", f"max({_gauge('quotas_not_understood')})"),
            ("nodes", f"max({_gauge('nodes_not_understood')})"),
        ),
        alerts=("LedgerObjectsNotUnderstood", "LedgerQuotasNotUnderstood"),
    ),
    Panel(
        "Time of an answer to the scheduler",
        "99 of 100 answers come within this time.",
        (("{{verb}}", _quantile(0.99, "extender_seconds", "verb")),),
        "s",
    ),
    Panel(
        "Answers to the scheduler",
        "Answers by verb and outcome.",
        (("{{verb}} {{outcome}}", _rate("extender_answers", "verb, outcome")),),
        "ops",
    ),
    Panel(
        "Dropped events and failed writes of status",
        "Events of pods that were not written, and writes of the status of quotas that failed.",
        (
            ("events, {{source}}", _rate("events_dropped", "source")),
            ("status, {{resource}}", _rate("status_writes", "resource", ',outcome!="done"')),
        ),
        "ops",
        alerts=("LedgerEventsDropped", "LedgerStatusNotWritten"),
    ),
)
