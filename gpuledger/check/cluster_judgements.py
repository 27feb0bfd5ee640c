"""Cluster judgements: findings about the API server, the registration and the dry runs. Pure."""

import math
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Final

from gpuledger.check.install_facts import InstallFacts, ServerIdentity
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
from gpuledger.check.probe_pods import ProbeAnswer, ProbeOutcome
from gpuledger.check.registered_webhooks import KINDS, PODS, REQUIRED, RegisteredWebhooks
from gpuledger.check.replica_reports import ReplicaProblem, ReplicaReport

OLDEST: Final = (1, 30)
"""The oldest Kubernetes with match conditions, which the webhooks use."""

NEWEST: Final = (1, 37)
"""The newest Kubernetes that this version was tested with."""

CLOCK_WARN_SECONDS: Final = 3.0
"""Both clocks are read in whole seconds, so two equal clocks may differ by up to 2 s."""

CLOCK_FAIL_SECONDS: Final = 15.0
"""A pod that is being deleted counts until its grace period ends by the replica's clock. A faster
clock gives its cards away while its containers still run."""

API_SERVER: Final = "api-server"
RIGHTS: Final = "rights"
CLOCK: Final = "clock"
WEBHOOKS: Final = "webhooks"
ADMISSION: Final = "admission"

_REPAIR: Final = (
    "wait 10 s, because the service repairs address and caBundle; if it does not, read its log for"
    " webhook_not_registered and webhook_not_compared"
)
"""Never to delete the configurations, because no pod is reviewed without them."""

_SHOWN: Final = 3
_EXPIRED_TEXT: Final = "certificate has expired or is not yet valid"
_UNDECIDED: Final = ("LedgerUnavailable", "LedgerStopped", "Overloaded", "LogFull")


def judge_api_server(facts: InstallFacts) -> InstallFinding:
    """Return whether the API server answers, and has a supported version."""
    unanswered = judge_unanswered(facts.unanswered)
    if unanswered is not None:
        return unanswered
    if isinstance(facts.version, Unasked):
        return not_asked(API_SERVER, facts.version)
    version = facts.version
    return judge_version(version.git_version, version.major, version.minor, facts.address)


def judge_unanswered(unanswered: Sequence[str]) -> InstallFinding | None:
    """Return the finding of questions without an answer, None if all were answered."""
    if not unanswered:
        return None
    return failed(
        API_SERVER,
        _first(unanswered),
        "check the address of the kubeconfig and the API server; then check again",
    )


def judge_version(name: str, major: str, minor: str, address: str) -> InstallFinding:
    """Return whether this product supports a version of Kubernetes."""
    where = f"Kubernetes {name} at {address}"
    try:
        # Distributions add a sign, as in 30+.
        number = (int(major), int(minor.rstrip("+")))
    except ValueError:
        return warned(API_SERVER, where, "the version has no number: compare it with 1.30 to 1.37")
    if number < OLDEST:
        return failed(
            API_SERVER, where, "upgrade to Kubernetes 1.30 or newer, which has match conditions"
        )
    if number > NEWEST:
        return warned(API_SERVER, where, "newer than 1.37, which this version was tested with")
    return passed(API_SERVER, where)


def judge_rights(facts: InstallFacts) -> InstallFinding:
    """Return whether the account of this command could ask all questions."""
    replicas = facts.replicas if not isinstance(facts.replicas, Unasked) else []
    problems = [
        *facts.refused,
        *(
            replica.reason
            for replica in replicas
            if facts.site.inside and replica.problem is ReplicaProblem.REFUSED
        ),
    ]
    if problems:
        user = facts.identity.user if isinstance(facts.identity, ServerIdentity) else "this account"
        return failed(
            RIGHTS,
            _first(problems),
            f"give {user} the ClusterRole and the Roles {facts.site.name}-check of the chart",
        )
    if facts.unanswered:
        return not_asked(RIGHTS, Unasked("questions were not answered", "the remedy of api-server"))
    return passed(RIGHTS, "this account may ask all questions")


def judge_clock(facts: InstallFacts) -> InstallFinding:
    """Return whether the clocks of replicas and API server agree."""
    if isinstance(facts.identity, Unasked):
        return not_asked(CLOCK, facts.identity)
    if isinstance(facts.replicas, Unasked):
        return not_asked(CLOCK, facts.replicas)
    ahead = {
        replica.name: difference
        for replica in facts.replicas
        if (difference := _ahead(replica, facts.identity)) is not None
    }
    if not ahead:
        return not_asked(CLOCK, Unasked("no replica answered", "the remedy of replicas"))
    name, worst = max(ahead.items(), key=lambda item: abs(item[1]))
    text = f"{name} is {abs(worst):.0f} s {'ahead of' if worst > 0 else 'behind'} the API server"
    remedy = "set the clocks of the nodes and of the API server by NTP"
    if abs(worst) > CLOCK_FAIL_SECONDS:
        return failed(CLOCK, text, remedy)
    if abs(worst) > CLOCK_WARN_SECONDS:
        return warned(CLOCK, text, remedy)
    return passed(CLOCK, f"{len(ahead)} replicas, at most {math.ceil(abs(worst))} s apart")


def _ahead(replica: ReplicaReport, server: ServerIdentity) -> float | None:
    """Return by how many seconds a replica's clock is ahead of the API server's."""
    if replica.date is None:
        return None
    return (replica.date - replica.asked) - (server.time - server.asked)


def judge_webhooks(facts: InstallFacts) -> InstallFinding:
    """Return whether the webhooks are registered with the CA of the replicas, and answer."""
    registration = facts.registration
    if isinstance(registration, Unasked):
        return not_asked(WEBHOOKS, registration)
    problem = _unregistered(facts.site.name, registration) or _untrusted(facts, registration)
    if problem is not None:
        return problem
    for answer in (facts.denied, facts.allowed):
        if answer.outcome is ProbeOutcome.NOT_ANSWERED:
            return _unanswered(answer, registration)
    entries = registration.entries()
    text = f"{len(entries)} webhooks call {registration.target}"
    if registration.others:
        return warned(
            WEBHOOKS,
            f"{text}; {registration.other_names} review the same objects",
            "each installation charges the same pods: remove one, for example"
            f" {registration.others[0].removal}",
        )
    if any(entry.name == PODS and entry.failure_policy == "Ignore" for entry in entries):
        return warned(
            WEBHOOKS,
            f"{text}, and pods are admitted uncharged while no replica answers",
            "set webhook.failurePolicy to Fail",
        )
    return passed(WEBHOOKS, text)


def _unregistered(name: str, registration: RegisteredWebhooks) -> InstallFinding | None:
    missing = [kind for kind in KINDS if kind not in registration.configurations]
    remedy = (
        "the service registers itself with the setting register_service (or register_webhook): read"
        " its log for webhook_not_registered; or check another --release"
    )
    if missing:
        names = ", ".join(f"{kind}webhookconfiguration {name}" for kind in missing)
        others = f"; others are {registration.other_names}" if registration.others else ""
        return failed(WEBHOOKS, f"missing: {names}{others}", remedy)
    if registration.conflicts:
        return failed(
            WEBHOOKS,
            f"{', '.join(registration.conflicts)} have another address or caBundle than {PODS}",
            _REPAIR,
        )
    absent = sorted(REQUIRED - {entry.name for entry in registration.entries()})
    if absent:
        return failed(WEBHOOKS, f"webhooks are missing: {', '.join(absent)}", remedy)
    return None


def _untrusted(facts: InstallFacts, registration: RegisteredWebhooks) -> InstallFinding | None:
    """Return the finding of a CA that has not issued the certificates of the replicas."""
    remedy = (
        f"{_REPAIR}; for certificates of your own without tls_ca, write their CA by gpuledger"
        " webhook print --ca"
    )
    try:
        registration.authorities()
    except ValueError:
        return failed(WEBHOOKS, "the caBundle holds no certificates in PEM", remedy)
    replicas = facts.replicas if not isinstance(facts.replicas, Unasked) else []
    for replica in replicas:
        if replica.problem is ReplicaProblem.UNTRUSTED:
            return failed(
                WEBHOOKS,
                f"the caBundle does not verify the certificate of {replica.name}: {replica.reason}",
                remedy,
            )
    return None


def _unanswered(answer: ProbeAnswer, registration: RegisteredWebhooks) -> InstallFinding:
    if _EXPIRED_TEXT in answer.message:
        return not_asked(WEBHOOKS, Unasked("a certificate expired", "the remedy of certificates"))
    if "x509" in answer.message:
        remedy = _REPAIR
    else:
        remedy = (
            f"check that {registration.target} has ready pods, and that the API server reaches them"
            " (NetworkPolicy, firewall)"
        )
    return failed(WEBHOOKS, answer.message, remedy)


def judge_admission(facts: InstallFacts, *causes: InstallFinding) -> InstallFinding:
    """Return whether the API server allows the one dry run and our webhook denies the other.

    `causes` are findings without which no dry run can have the right answer.
    """
    unknown = _undecided(facts, causes)
    if unknown is not None:
        return unknown
    denied, allowed, where = facts.denied, facts.allowed, facts.site.probes
    other = "name a namespace without quotas, whose policy enforces, with --probe-namespace"
    if denied.outcome is ProbeOutcome.ALLOWED:
        return failed(
            ADMISSION,
            f"a pod in {where} with an invalid amount of memory is allowed",
            f"wait some seconds after the registration; or {other}",
        )
    if denied.outcome is not ProbeOutcome.DENIED:
        return failed(ADMISSION, denied.message, other)
    if allowed.outcome is not ProbeOutcome.ALLOWED:
        return failed(ADMISSION, f"a pod with one card is denied: {allowed.message}", other)
    return passed(ADMISSION, f"dry runs in {where}: one pod allowed, one denied")


def _undecided(facts: InstallFacts, causes: Sequence[InstallFinding]) -> InstallFinding | None:
    """Return the finding if another finding explains the answers, or there are none."""
    for cause in causes:
        if cause.outcome is CheckOutcome.FAILED:
            return after(ADMISSION, cause)
    for answer in (facts.denied, facts.allowed):
        if answer.outcome is ProbeOutcome.NOT_ANSWERED:
            return not_asked(ADMISSION, Unasked("no webhook answered", "the remedy of webhooks"))
        if answer.outcome is ProbeOutcome.UNASKED:
            return not_asked(ADMISSION, Unasked(answer.message, "the remedy of rights"))
    return None


def is_undecided(answer: ProbeAnswer) -> bool:
    """Return whether our webhook denied a dry run because it could not decide."""
    return answer.outcome is ProbeOutcome.DENIED and any(
        reason in answer.message for reason in _UNDECIDED
    )


def expired(answer: ProbeAnswer) -> bool:
    """Return whether the API server did not accept an expired certificate."""
    return answer.outcome is ProbeOutcome.NOT_ANSWERED and _EXPIRED_TEXT in answer.message


def days_until(end: float) -> float:
    """Return the days until a time, in seconds of Unix time."""
    return (end - datetime.now(UTC).timestamp()) / 86_400


def _first(messages: Sequence[str]) -> str:
    """Return the first of different messages, and how many more there are."""
    different = tuple(dict.fromkeys(messages))
    more = len(different) - _SHOWN
    return "; ".join(different[:_SHOWN]) + (f"; and {more} more" if more > 0 else "")
