"""Every claim of the demo, once true and once violated: a claim that cannot fail proves nothing."""

import re
from typing import Any

import pytest
from msgspec.structs import replace

from gpuledger.demo import checks
from gpuledger.demo.failed_claim import FailedClaim
from gpuledger.demo.recordings import Creation, RecordedCreation
from gpuledger.demo.service_state import ObservedState
from gpuledger.demo.traffic import CreationOutcome, ReviewAnswer
from projections.queries.holders import HolderCharge, OpenHold
from projections.queries.quota_usage import Usage
from projections.store.digest import Digest

GPU = "nvidia.com/gpu"
NO_ROOM = "namespace team has no GPUs left. [QuotaExceeded; decision d-1]"
SENSELESS = "nvidia.com/gpumem is 16Gi. [InvalidQuantity]"


def creation(name: str, case: str = "pod-create") -> Creation:
    return Creation(RecordedCreation(case, "kube-apiserver", {}, {}), "team", name, f"uid-{name}")


def answer(name: str, outcome: CreationOutcome, message: str = "", **fields: Any) -> ReviewAnswer:
    case = fields.pop("case", "pod-create")
    return ReviewAnswer(creation(name, case), outcome, message, **fields)


def usage(used: int, limit: int = 4) -> Usage:
    line = f"requests.{GPU}"
    return Usage("local", "team", "gpus", line, limit, used, 0, used, limit - used)


def holder(pod: Creation, cards: int = 1) -> HolderCharge:
    amounts = {GPU: cards}
    return HolderCharge(
        "local", "team", pod.key, pod.uid, amounts, {}, amounts, 1, "", "", {}, {}, 0
    )


def hold(pod: Creation) -> OpenHold:
    return OpenHold("local", "team", pod.key, pod.uid, 0, {GPU: 1}, "", "", "admin", "")


A, B, C = creation("a"), creation("b"), creation("c")
STATE = ObservedState(7, [usage(2)], [holder(A), holder(B)], [hold(A), hold(B)])
DIGEST = Digest(7, "d1")
COMPARED = {"position": 7, "digest": "d1", "rebuilt": "d1", "same": True}
RESERVED = [{"type": "Reserved", "uid": pod.uid} for pod in (A, B)]

ALLOWED = answer("a", CreationOutcome.ALLOWED, asked=True)
DENIED = answer("b", CreationOutcome.DENIED, NO_ROOM, asked=True)
UNREADABLE = answer("c", CreationOutcome.DENIED, SENSELESS, asked=True, case=checks.UNREADABLE)
UNANSWERED = answer("d", CreationOutcome.UNANSWERED, asked=True)


def broken(check: Any, *arguments: Any) -> str:
    """Return the message of a claim that must fail."""
    with pytest.raises(FailedClaim) as caught:
        check(*arguments)
    return str(caught.value)


def test_answers_are_counted_and_a_missing_one_fails() -> None:
    assert "1 allowed, 1 denied" in checks.all_requests_answered([ALLOWED, DENIED])
    assert "1 got none" in broken(checks.all_requests_answered, [ALLOWED, UNANSWERED])


def test_denials_are_right_only_with_the_reason_that_fits_the_request() -> None:
    said = checks.denials_are_right([ALLOWED, DENIED, UNREADABLE])
    assert re.search(r"\b1 were denied because there was no room, 1 because", said)
    other = replace(DENIED, message="it is starting. [LedgerUnavailable]")
    assert "LedgerUnavailable" in broken(checks.denials_are_right, [other, DENIED, UNREADABLE])
    swapped = replace(UNREADABLE, message=NO_ROOM)
    assert NO_ROOM in broken(checks.denials_are_right, [DENIED, swapped, UNREADABLE])


def test_denials_are_not_right_when_a_senseless_request_is_allowed() -> None:
    let_in = replace(UNREADABLE, outcome=CreationOutcome.ALLOWED, message="")
    assert "InvalidQuantity" in broken(checks.denials_are_right, [DENIED, UNREADABLE, let_in])


@pytest.mark.parametrize("answers", [[ALLOWED, UNREADABLE], [ALLOWED, DENIED]])
def test_denials_are_not_right_when_a_kind_of_them_is_missing(answers: list[ReviewAnswer]) -> None:
    broken(checks.denials_are_right, answers)


@pytest.mark.parametrize("answers", [[ALLOWED, DENIED], [DENIED, UNANSWERED]])
def test_traffic_is_not_interrupted_before_or_after_all_of_it(answers: list[ReviewAnswer]) -> None:
    assert "1 allowed" in checks.interrupted([ALLOWED, DENIED, UNANSWERED])
    broken(checks.interrupted, answers)


def test_nothing_lost_breaks_for_one_reservation_that_is_gone() -> None:
    assert "2 acknowledged" in checks.nothing_lost(STATE, [A, B])
    assert "1: team/c (uid-c)" in broken(checks.nothing_lost, STATE, [A, B, C])


def test_nothing_lost_breaks_for_a_reservation_in_another_namespace() -> None:
    broken(checks.nothing_lost, STATE, [A, replace(B, namespace="other")])


def test_nothing_invented_admits_only_what_was_cut_off_at_the_decision() -> None:
    cut_off = ReviewAnswer(B, CreationOutcome.UNANSWERED, asked=True)
    assert "1 of the 1" in checks.nothing_invented(STATE, [A], [cut_off])
    never_asked = replace(cut_off, asked=False)
    assert "uid-b" in broken(checks.nothing_invented, STATE, [A], [never_asked])


def test_a_limit_that_is_exceeded_is_found() -> None:
    full = replace(STATE, usage=[usage(4)])
    assert "1 limits" in checks.within_limits(full)
    assert "used 5 of 4" in broken(checks.within_limits, replace(STATE, usage=[usage(5)]))
    broken(checks.within_limits, replace(STATE, usage=[]))
    wrong = replace(usage(2), free=3)
    assert "free 3" in broken(checks.within_limits, replace(STATE, usage=[wrong]))


def test_used_has_to_be_the_sum_of_what_the_holders_have() -> None:
    assert "2 pods" in checks.charged_once(STATE, [A, B])
    twice = replace(STATE, usage=[usage(3)])
    assert "used 3, but they have 2" in broken(checks.charged_once, twice, [A, B])


def test_the_holders_have_to_be_the_pods_that_were_admitted() -> None:
    assert "pods/b" in broken(checks.charged_once, STATE, [A])
    assert "pods/c" in broken(checks.charged_once, STATE, [A, B, C])


@pytest.mark.parametrize(
    "difference", [{"digest": "d2"}, {"rebuilt": "d2"}, {"position": 8}, {"same": False}]
)
def test_digests_are_the_same_only_when_all_three_are_at_one_position(
    difference: dict[str, Any],
) -> None:
    assert "position 7" in checks.same_digest(DIGEST, COMPARED)
    broken(checks.same_digest, DIGEST, COMPARED | difference)


def test_an_audit_without_one_of_the_reservations_is_found() -> None:
    assert "all 2" in checks.audit_lists_all(RESERVED, "team", [A, B])
    assert "uid-c" in broken(checks.audit_lists_all, RESERVED, "team", [A, C])
    broken(checks.audit_lists_all, RESERVED, "team", [])


def test_a_log_that_is_not_intact_or_ends_early_is_found() -> None:
    report = {"ok": True, "records": 7, "position": 7, "problem": None}
    assert "7 records" in checks.log_is_intact(report, 7)
    broken(checks.log_is_intact, report, 8)
    assert "no hash" in broken(
        checks.log_is_intact, report | {"ok": False, "problem": "no hash"}, 7
    )


def test_end_is_clean_only_with_exit_status_zero() -> None:
    assert checks.ended_cleanly(0)
    assert "-9" in broken(checks.ended_cleanly, -9)
