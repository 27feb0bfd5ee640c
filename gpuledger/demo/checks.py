"""Checks of the demo's claims: each returns the sentence to print, or raises FailedClaim.

They compare the answers of clients with the state of the ledger.
"""

from collections import Counter
from collections.abc import Collection, Sequence
from typing import Any, Final

from gpuledger.demo.failed_claim import FailedClaim
from gpuledger.demo.recordings import Creation
from gpuledger.demo.service_state import ObservedState
from gpuledger.demo.traffic import CreationOutcome, ReviewAnswer
from ledger.core.model.denials import Reason
from projections.store.digest import Digest

UNREADABLE: Final = "pod-create-gpumem-16Gi"
"""The recording that asks for 16Gi of a resource that counts MiB."""

Lines = Sequence[dict[str, Any]]
"""Events, as `gpuledger audit replay -o json` prints them."""


def all_requests_answered(answers: Sequence[ReviewAnswer]) -> str:
    """Every request got an answer."""
    outcomes = Counter(answer.outcome for answer in answers)
    if outcomes[CreationOutcome.UNANSWERED]:
        raise FailedClaim(
            "every pod gets an answer", f"{outcomes[CreationOutcome.UNANSWERED]} got none"
        )
    return (
        f"every pod got an answer: {outcomes[CreationOutcome.ALLOWED]} allowed,"
        f" {outcomes[CreationOutcome.DENIED]} denied"
    )


def denials_are_right(answers: Sequence[ReviewAnswer]) -> str:
    """Invalid requests are denied as invalid, all others only because of the quota."""
    reasons: Counter[Reason] = Counter()
    for answer in answers:
        unreadable = answer.creation.recording.case == UNREADABLE
        reason = Reason.INVALID_QUANTITY if unreadable else Reason.QUOTA_EXCEEDED
        wrongly_allowed = unreadable and answer.outcome is CreationOutcome.ALLOWED
        wrongly_denied = answer.outcome is CreationOutcome.DENIED and not answer.names(reason)
        if wrongly_allowed or wrongly_denied:
            raise FailedClaim(
                f"{answer.creation.key} can only be denied as {reason}",
                answer.message or answer.outcome.value,
            )
        reasons[reason] += answer.outcome is CreationOutcome.DENIED
    no_room, no_sense = reasons[Reason.QUOTA_EXCEEDED], reasons[Reason.INVALID_QUANTITY]
    if not (no_room and no_sense):
        raise FailedClaim("some are denied for either reason", f"{no_room} and {no_sense}")
    return (
        f"{no_room} were denied because there was no room,"
        f" {no_sense} because their request makes no sense"
    )


def interrupted(answers: Sequence[ReviewAnswer]) -> str:
    """The service was killed while it was answering."""
    outcomes = Counter(answer.outcome for answer in answers)
    if not (outcomes[CreationOutcome.ALLOWED] and outcomes[CreationOutcome.UNANSWERED]):
        raise FailedClaim("the service is killed in the middle of traffic", str(dict(outcomes)))
    in_flight = sum(
        answer.asked for answer in answers if answer.outcome is CreationOutcome.UNANSWERED
    )
    return (
        f"killed while it worked: {outcomes[CreationOutcome.ALLOWED]} allowed,"
        f" {outcomes[CreationOutcome.DENIED]} denied, {outcomes[CreationOutcome.UNANSWERED]}"
        f" without an answer,"
        f" {in_flight} of them cut off at the very decision"
    )


def nothing_lost(state: ObservedState, allowed: Collection[Creation]) -> str:
    """Every acknowledged reservation is there: its uid, at its key."""
    held = {(hold.namespace, hold.key, hold.uid) for hold in state.holds}
    lost = [
        creation
        for creation in allowed
        if (creation.namespace, creation.key, creation.uid) not in held
    ]
    if lost:
        raise FailedClaim("every acknowledged reservation is there", f"without {_names(lost)}")
    return f"every one of {len(allowed)} acknowledged reservations is there"


def nothing_invented(
    state: ObservedState, allowed: Collection[Creation], unanswered: Collection[ReviewAnswer]
) -> str:
    """Every charged pod was allowed, or was being decided when the answer was cut off."""
    known = {creation.uid for creation in allowed}
    cut_off = {answer.creation.uid for answer in unanswered if answer.asked}
    held = {hold.uid for hold in state.holds}
    if invented := held - known - cut_off:
        raise FailedClaim("every charged pod was requested", f"uids {sorted(invented)}")
    stored = len(held & cut_off)
    return f"and nothing else, but {stored} of the {len(cut_off)} that were cut off at the decision"


def within_limits(state: ObservedState) -> str:
    """No account is used beyond its limit."""
    if not state.usage:
        raise FailedClaim("usage lists quotas", "it is empty")
    for row in state.usage:
        if row.used > row.limit or row.free != row.limit - row.used:
            raise FailedClaim(
                f"{row.resource} of {row.namespace} is used within its limit",
                f"used {row.used} of {row.limit}, free {row.free}",
            )
    return f"none of {len(state.usage)} limits is exceeded"


def charged_once(state: ObservedState, pods: Collection[Creation]) -> str:
    """Each pod is charged once, however often it was tried, and used is their sum."""
    expected = {(pod.namespace, pod.key) for pod in pods}
    holders = {(holder.namespace, holder.key) for holder in state.holders}
    if holders != expected:
        raise FailedClaim("the holders are the admitted pods", _differing(holders, expected))
    for row in state.usage:
        resource = row.resource.partition(".")[2]
        mine = [holder.amounts for holder in state.holders if holder.namespace == row.namespace]
        total = sum(amounts.get(resource, 0) for amounts in mine)
        if total != row.used:
            raise FailedClaim(
                f"used {row.resource} of {row.namespace} is the sum of its holders",
                f"used {row.used}, but they have {total}",
            )
    return f"used is exactly what {len(expected)} pods hold, each charged once"


def same_digest(killed: Digest, compared: dict[str, Any]) -> str:
    """The killed projection, the same file continued, and a new one agree at the position."""
    digests = {killed.digest, compared["digest"], compared["rebuilt"]}
    if compared["position"] != killed.position or not compared["same"] or len(digests) != 1:
        raise FailedClaim(
            f"the projections agree at position {killed.position}",
            f"{killed.digest} was killed, {compared} was compared",
        )
    return f"both are the same at position {killed.position}"


def audit_lists_all(lines: Lines, namespace: str, allowed: Collection[Creation]) -> str:
    """The audit lists every acknowledged reservation of the namespace."""
    reserved = {line["uid"] for line in lines if line["type"] == "Reserved"}
    mine = [creation for creation in allowed if creation.namespace == namespace]
    missing = [creation for creation in mine if creation.uid not in reserved]
    if missing or not mine:
        raise FailedClaim(f"the audit lists all of {namespace}", f"without {_names(missing)}")
    return f"{len(lines)} events include all {len(mine)} acknowledged reservations of {namespace}"


def log_is_intact(report: dict[str, Any], position: int) -> str:
    """The log is whole up to at least a position."""
    if not report["ok"] or report["position"] < position:
        raise FailedClaim(f"the log is intact up to position {position}", str(report))
    return f"{report['records']} records: no gap, every hash, the chain and every balance are right"


def ended_cleanly(status: int) -> str:
    """The service ended by itself after SIGTERM."""
    if status != 0:
        raise FailedClaim("the service ends cleanly", f"exit status {status}")
    return "it ended with exit status 0"


def _names(creations: Collection[Creation]) -> str:
    some = ", ".join(
        f"{creation.namespace}/{creation.name} ({creation.uid})" for creation in list(creations)[:3]
    )
    return f"{len(creations)}: {some}"


def _differing(holders: set[tuple[str, str]], expected: set[tuple[str, str]]) -> str:
    too_many, too_few = sorted(holders - expected), sorted(expected - holders)
    return f"not admitted {too_many[:3]}, not charged {too_few[:3]}"
