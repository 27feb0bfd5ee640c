"""The role rule: the label by the age of beats and by the own role, with its hysteresis."""

from typing import Any

import pytest

from gpuledger.server.role.role_rule import (
    CONFIRMED_SECONDS,
    KEPT_SECONDS,
    MISSED_SECONDS,
    SETTLED_SECONDS,
    SURVIVED_SECONDS,
    RoleDecision,
    RoleFacts,
    RoleMemory,
    SeenPod,
    decide,
)

NOW = 100.0
SERVING = SeenPod(NOW, labelled=True, serving=True)
OTHER = {"beat_by": "other", "beat_at": NOW, "other": SERVING}
LONG = RoleMemory(fresh_since=NOW - KEPT_SECONDS)
GONE = SeenPod(NOW, labelled=False, serving=False)


def facts(**changes: Any) -> RoleFacts:
    """Return the facts of a ready follower that has the label and received nothing."""
    return RoleFacts(NOW, False, True, "", None, NOW, SERVING, None)._replace(**changes)


def decision(memory: RoleMemory, **changes: Any) -> RoleDecision:
    return decide(memory, facts(**changes))[1]


@pytest.mark.parametrize(
    ("memory", "changes", "label"),
    [
        (RoleMemory(), {}, True),
        (RoleMemory(), {"pod": None}, True),
        (LONG, OTHER, False),
        (RoleMemory(fresh_since=NOW - KEPT_SECONDS + 0.1), OTHER, True),
        (RoleMemory(), {**OTHER, "pod": SERVING._replace(labelled=False)}, False),
        (LONG, {**OTHER, "owner": True}, True),
        (RoleMemory(fresh_since=0.0), {**OTHER, "beat_at": NOW - MISSED_SECONDS}, False),
        (RoleMemory(fresh_since=0.0), {**OTHER, "beat_at": NOW - MISSED_SECONDS - 0.01}, True),
        (RoleMemory(fresh_since=0.0), {"beat_at": None}, True),
        (LONG, {**OTHER, "other": None}, True),
        (LONG, {**OTHER, "other": SERVING._replace(labelled=False)}, True),
        (LONG, {**OTHER, "other": SERVING._replace(serving=False)}, True),
        (LONG, {**OTHER, "other": SERVING._replace(read_at=NOW - CONFIRMED_SECONDS - 0.1)}, True),
        (LONG, {**OTHER, "other": GONE, "pod": SERVING._replace(labelled=False)}, True),
        (LONG, {**OTHER, "other": None, "pod": SERVING._replace(labelled=False)}, False),
    ],
    ids=[
        "no beat",
        "own pod not read yet",
        "beats for long",
        "beats not for long",
        "beats again after the label was dropped",
        "own lease beside beats",
        "newest beat just recent",
        "newest beat too old",
        "handed over",
        "the other pod not read",
        "the other pod without label",
        "the other pod not ready",
        "the other pod read long ago",
        "the other pod gone after the label was dropped",
        "the other pod not read after the label was dropped",
    ],
)
def test_label_follows_the_beats(memory: RoleMemory, changes: Any, label: bool) -> None:
    assert decision(memory, **changes).label is label


@pytest.mark.parametrize(
    ("since", "changes", "alone"),
    [
        (NOW - SETTLED_SECONDS, {}, True),
        (NOW - SETTLED_SECONDS + 0.1, {}, False),
        (NOW - SETTLED_SECONDS, {"owner": False}, False),
        (NOW - SETTLED_SECONDS, {"ready": False}, False),
        (NOW - SETTLED_SECONDS, {"pod": SERVING._replace(serving=False)}, False),
        (NOW - SETTLED_SECONDS, {"pod": SERVING._replace(labelled=False)}, False),
        (NOW - SETTLED_SECONDS, {"pod": None}, False),
        (
            NOW - SETTLED_SECONDS,
            {"pod": SERVING._replace(read_at=NOW - CONFIRMED_SECONDS - 0.1)},
            False,
        ),
    ],
    ids=[
        "settled",
        "not settled",
        "no lease",
        "not ready",
        "not ready for Kubernetes",
        "without label",
        "own pod not read",
        "own pod read long ago",
    ],
)
def test_owner_answers_alone_once_its_pod_is_proven(
    since: float, changes: Any, alone: bool
) -> None:
    memory = RoleMemory(serving_since=since)
    assert decision(memory, **{"owner": True, **changes}).alone is alone


MISSED: dict[str, Any] = {"beat_by": "other", "beat_at": NOW - MISSED_SECONDS - 0.1}
SURVIVOR = RoleMemory(
    serving_since=NOW - SURVIVED_SECONDS, connected_since=NOW - SURVIVED_SECONDS, followed="other"
)


@pytest.mark.parametrize(
    ("memory", "changes", "remove"),
    [
        (SURVIVOR, MISSED, "other"),
        (SURVIVOR._replace(serving_since=NOW - SURVIVED_SECONDS + 0.1), MISSED, ""),
        (SURVIVOR._replace(connected_since=None), MISSED, ""),
        (SURVIVOR, {**MISSED, "echoed_at": NOW - MISSED_SECONDS - 0.1}, ""),
        (SURVIVOR._replace(followed=""), MISSED, ""),
        (SURVIVOR, {**MISSED, "beat_at": NOW}, ""),
        (SURVIVOR, {"beat_by": "", "beat_at": None}, ""),
    ],
    ids=[
        "missed",
        "own label too new",
        "connection too new",
        "connection lost",
        "removed before",
        "back",
        "handed over",
    ],
)
def test_survivor_removes_the_label_of_a_missed_owner(
    memory: RoleMemory, changes: Any, remove: str
) -> None:
    after, decided = decide(memory, facts(**changes))
    assert decided.remove == remove
    assert not remove or after.followed == "", "a label is removed once"


def test_beats_that_come_again_count_from_the_gap_on() -> None:
    memory = RoleMemory(fresh_since=0.0)
    memory, _ = decide(memory, facts(**MISSED))
    memory, decided = decide(memory, facts(**OTHER))
    assert memory.fresh_since == NOW
    assert decided.label is True
