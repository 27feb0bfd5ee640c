"""Replica judgements: findings from the reports of the replicas. Pure but for the present time."""

from collections.abc import Iterable, Sequence
from typing import Final

from gpuledger.check.cluster_judgements import days_until, expired, is_undecided
from gpuledger.check.install_facts import InstallFacts
from gpuledger.check.install_findings import (
    CheckOutcome,
    InstallFinding,
    Unasked,
    after,
    failed,
    not_asked,
    passed,
    warned,
)
from gpuledger.check.replica_reports import ReplicaProblem, ReplicaReport
from gpuledger.version import VERSION

LAG_RECORDS: Final = 10_000
"""Records behind the log at which the alert LedgerProjectionBehind fires."""

SERVER_WARN_DAYS: Final = 7.0
"""As the alert LedgerCertificateEnding; the service renews 30 days before the end."""

AUTHORITY_WARN_DAYS: Final = 90.0

REPLICAS: Final = "replicas"
LOG: Final = "log"
DURABILITY: Final = "durability"
SETTLEMENT: Final = "settlement"
PROJECTION: Final = "projection"
CERTIFICATES: Final = "certificates"
AUTHENTICATION: Final = "authentication"
IDENTITIES: Final = "identities"
VERSIONS: Final = "versions"

_OF_PROBLEM: Final = {
    ReplicaProblem.UNREACHABLE: "the remedy of replicas",
    ReplicaProblem.UNTRUSTED: "the remedy of webhooks",
    ReplicaProblem.EXPIRED: "the remedy of certificates",
    ReplicaProblem.REFUSED: "ask with a token that may get /metrics, as helm test does",
}
_SILENT: Final = Unasked("no replica answered", "the remedy of replicas")


def judge_replicas(facts: InstallFacts) -> InstallFinding:
    """Return whether there are replicas, and all of them answer and may serve."""
    replicas = facts.replicas
    if isinstance(replicas, Unasked):
        return not_asked(REPLICAS, replicas)
    if not replicas:
        return failed(
            REPLICAS,
            f"no running pod is behind the Service of {facts.site.name}",
            f"kubectl -n {facts.service_namespace} describe pods, and the log of the service",
        )
    silent = [replica for replica in replicas if replica.problem is ReplicaProblem.UNREACHABLE]
    if silent:
        return failed(
            REPLICAS,
            f"{_named(silent)} of {len(replicas)} do not answer: {silent[0].reason}",
            "check the pods, and a NetworkPolicy between this pod and port 8443 of the service",
        )
    for replica in replicas:
        if replica.problem is not None:
            return not_asked(REPLICAS, Unasked(replica.reason, _OF_PROBLEM[replica.problem]))
    stopping = [
        replica for replica in replicas if replica.fails("stopping") or replica.fails("extender")
    ]
    if stopping:
        reason = stopping[0].reason_of("stopping") or stopping[0].reason_of("extender")
        return failed(REPLICAS, f"{_named(stopping)}: {reason}", "wait for the replica, or its log")
    return passed(REPLICAS, f"{len(replicas)} answer: {_named(replicas)}")


def judge_log(facts: InstallFacts) -> InstallFinding:
    """Return whether every replica reaches the log and can write to it."""
    reports = answering(facts)
    if isinstance(reports, Unasked):
        for answer in (facts.denied, facts.allowed):
            if is_undecided(answer):
                return failed(LOG, answer.message, _LOG_REMEDY)
        return not_asked(LOG, reports)
    for replica in reports:
        if replica.fails("ledger"):
            return failed(LOG, f"{replica.name}: {replica.reason_of('ledger')}", _LOG_REMEDY)
        if not replica.metric("log_writable"):
            return failed(LOG, f"{replica.name}: the log stores no record", _LOG_REMEDY)
    space = next((reason for item in reports if (reason := item.reason_of("log-space"))), "")
    if space:
        return warned(LOG, space, "raise log_bytes_max: docs/how-to/operating.md, LedgerLogFilling")
    position = max(int(replica.metric("log_position")) for replica in reports)
    return passed(LOG, f"writable, at position {position}")


_LOG_REMEDY: Final = (
    "check the NATS servers (pods, disk space, credentials, CA): docs/how-to/operating.md,"
    " LedgerNotReady"
)


def judge_durability(facts: InstallFacts, log: InstallFinding) -> InstallFinding:
    """Return whether an acknowledged record survives a power failure."""
    reports = answering(facts)
    if isinstance(reports, Unasked):
        return not_asked(DURABILITY, reports)
    if log.outcome is CheckOutcome.FAILED:
        return after(DURABILITY, log)
    remedy = "three NATS servers of 2.15 or newer with sync_interval: always, and nats_monitor set"
    for replica in reports:
        if replica.fails("durability"):
            return failed(DURABILITY, replica.reason_of("durability"), remedy)
    for replica in reports:
        if replica.metric("durability_degraded"):
            return warned(DURABILITY, replica.reason_of("durability") or "not synced", remedy)
    return passed(DURABILITY, "every record is on disk before it is acknowledged")


def judge_settlement(facts: InstallFacts, log: InstallFinding) -> InstallFinding:
    """Return whether one replica settles the cluster, and reads it."""
    reports = answering(facts)
    if isinstance(reports, Unasked):
        return not_asked(SETTLEMENT, reports)
    if log.outcome is CheckOutcome.FAILED:
        return after(SETTLEMENT, log)
    for replica in reports:
        if replica.fails("cluster"):
            return failed(
                SETTLEMENT,
                f"{replica.name}: {replica.reason_of('cluster')}",
                f"give the account of the service the rights of ClusterRole {facts.site.name};"
                " docs/how-to/operating.md, Readiness",
            )
    settling = [replica for replica in reports if replica.metric("settler")]
    if not settling:
        return failed(
            SETTLEMENT,
            f"none of {len(reports)} replicas settles the cluster: holds stay open",
            "another process holds the lease of this cluster's name, or its replica just ended:"
            " wait ten seconds; then look for owner_changed in the log of the service",
        )
    holds = int(sum(replica.metric("holds_open") for replica in settling))
    text = f"{_named(settling)} settles, {holds} holds are open"
    unused = int(sum(replica.metric("resource_claims_unused") for replica in settling))
    if unused:
        return warned(
            SETTLEMENT,
            f"{text}; unused resource claims that take room of quotas for a day: {unused}",
            "/readyz of the service names them: delete those that were left behind",
        )
    return passed(SETTLEMENT, text)


def judge_projection(facts: InstallFacts, log: InstallFinding) -> InstallFinding:
    """Return whether the answers to queries follow the log."""
    reports = answering(facts)
    if isinstance(reports, Unasked):
        return not_asked(PROJECTION, reports)
    if log.outcome is CheckOutcome.FAILED:
        return after(PROJECTION, log)
    lag, name = max((replica.metric("projection_lag_records"), replica.name) for replica in reports)
    restarts = next((reason for item in reports if (reason := item.reason_of("follower"))), "")
    text = f"at most {lag:.0f} records behind the log"
    remedy = "read the log of the service for the projection's process, and its disk and CPU"
    if lag > LAG_RECORDS:
        return failed(PROJECTION, f"{name} is {lag:.0f} records behind the log", remedy)
    if restarts:
        return warned(PROJECTION, f"{text}; {restarts}", remedy)
    return passed(PROJECTION, text)


def judge_certificates(facts: InstallFacts) -> InstallFinding:
    """Return whether the certificates of the replicas and their CA are valid for some time."""
    remedy = (
        "the service renews its own certificate 30 days before the end: read its log for"
        " certificate_unusable, and check the clock; renew a certificate of your own"
    )
    reports = facts.replicas if not isinstance(facts.replicas, Unasked) else []
    for replica in reports:
        if replica.problem is ReplicaProblem.EXPIRED:
            return failed(CERTIFICATES, f"that of {replica.name} has expired", remedy)
    for answer in (facts.denied, facts.allowed):
        if expired(answer):
            return failed(CERTIFICATES, answer.message, remedy)
    if isinstance(facts.registration, Unasked):
        return not_asked(CERTIFICATES, facts.registration)
    try:
        ends = [ca.not_valid_after_utc.timestamp() for ca in facts.registration.authorities()]
    except ValueError:
        return not_asked(CERTIFICATES, Unasked("the caBundle is invalid", "the remedy of webhooks"))
    known = answering(facts)
    reports = [] if isinstance(known, Unasked) else known
    judged = _judge_ends(max(ends, default=0.0), min(_ends(reports), default=0.0), remedy)
    reason = next((text for item in reports if (text := item.reason_of("certificate"))), "")
    if reason and judged.outcome is CheckOutcome.OK:
        return warned(CERTIFICATES, reason, remedy)
    return judged


def _ends(reports: Iterable[ReplicaReport]) -> list[float]:
    ends = (replica.metric("certificate_expiry_timestamp_seconds") for replica in reports)
    return [end for end in ends if end]


def _judge_ends(authority: float, served: float, remedy: str) -> InstallFinding:
    """Judge the ends of CA and server certificate, in seconds of Unix time, 0 where unknown."""
    days, server_days = days_until(authority), days_until(served)
    shown = [f"CA {days:.0f} days"] if authority else []
    shown += [f"server {server_days:.0f} days"] if served else ["server not asked"]
    text = ", ".join(shown)
    if (authority and days <= 0) or (served and server_days <= 0):
        return failed(CERTIFICATES, f"expired: {text}", remedy)
    if (authority and days < AUTHORITY_WARN_DAYS) or (served and server_days < SERVER_WARN_DAYS):
        return warned(CERTIFICATES, text, remedy)
    if not served:
        return not_asked(CERTIFICATES, Unasked(text, "the remedy of replicas"))
    return passed(CERTIFICATES, text)


def judge_authentication(facts: InstallFacts) -> InstallFinding:
    """Return whether only permitted clients send reviews and read data."""
    reports = answering(facts)
    if isinstance(reports, Unasked):
        return not_asked(AUTHENTICATION, reports)
    remedy = (
        "set client_ca and give the API server a certificate: docs/how-to/operating.md, A client"
        " certificate for the API server"
    )
    for replica in reports:
        reason = replica.reason_of("authentication")
        if replica.fails("authentication"):
            return failed(AUTHENTICATION, reason, remedy)
        if reason:
            return warned(AUTHENTICATION, reason, remedy)
    return passed(AUTHENTICATION, "reviews are accepted from certified clients only")


def judge_identities(facts: InstallFacts) -> InstallFinding:
    """Return whether the controllers act under the expected names."""
    reports = answering(facts)
    if isinstance(reports, Unasked):
        return not_asked(IDENTITIES, reports)
    unknown = sum(
        replica.metric("controllers_not_believed") + replica.metric("allocators_refused")
        for replica in reports
    )
    reasons = "; ".join(
        dict.fromkeys(filter(None, (item.reason_of("surroundings") for item in reports)))
    )
    if unknown:
        return failed(
            IDENTITIES,
            f"objects of the last hour count beside their root: {reasons}",
            "add the user to controller_identities or trusted_identities as named; gpuledger drift"
            " lists older ones",
        )
    if reasons:
        return warned(IDENTITIES, reasons, "docs/how-to/operating.md, Readiness, surroundings")
    return passed(IDENTITIES, "all controllers of the last hour are the expected ones")


def judge_versions(facts: InstallFacts) -> InstallFinding:
    """Return whether replicas, agents and this command have one version."""
    reports = answering(facts)
    if isinstance(reports, Unasked):
        return not_asked(VERSIONS, reports)
    agents = facts.agents if not isinstance(facts.agents, Unasked) else []
    versions = {replica.version for replica in reports}
    versions |= {agent.version for agent in agents if agent.version}
    if versions == {VERSION}:
        return passed(VERSIONS, f"gpuledger {VERSION}")
    return warned(
        VERSIONS,
        f"this command {VERSION}, replicas and agents {', '.join(sorted(versions))}",
        "wait for the end of the rollout, or use the command of the service's image",
    )


def answering(facts: InstallFacts) -> list[ReplicaReport] | Unasked:
    """Return the reports of the replicas that answered, or why there are none."""
    if isinstance(facts.replicas, Unasked):
        return facts.replicas
    answered = [replica for replica in facts.replicas if replica.problem is None]
    if answered:
        return answered
    problems = [replica for replica in facts.replicas if replica.problem is not None]
    if not problems:
        return _SILENT
    first = problems[0]
    return Unasked(first.reason, _OF_PROBLEM[first.problem or ReplicaProblem.UNREACHABLE])


def _named(replicas: Sequence[ReplicaReport]) -> str:
    return ", ".join(replica.name for replica in replicas)
