"""The lock of a node: whose it is, since when, and when it does not hold any more."""

from datetime import UTC, datetime, timedelta, timezone

import pytest

from ledger.kube.hami import node_lock_annotation
from ledger.kube.hami.node_lock_annotation import EXPIRES_AFTER, NodeLock

NOW = datetime(2026, 3, 1, 12, 0, 0, tzinfo=UTC)
SECOND = timedelta(seconds=1)


def test_a_lock_is_read_as_it_was_written() -> None:
    text = node_lock_annotation.write("team", "train-0", NOW + timedelta(milliseconds=400))
    assert text == "2026-03-01T12:00:00+00:00,team,train-0"
    assert node_lock_annotation.read(text) == NodeLock(NOW, "team", "train-0")


@pytest.mark.parametrize(
    ("text", "lock"),
    [
        ("2026-03-01T12:00:00Z,team,p", NodeLock(NOW, "team", "p")),
        ("2026-03-01T20:00:00+08:00,team,p", NodeLock(NOW, "team", "p")),
        ("2026-03-01T12:00:00Z", NodeLock(NOW)),
        (None, None),
        ("", None),
        ("locked", None),
        ("2026-03-01T12:00:00,team,p", None),
        ("2026-03-01T12:00:00Z,team", None),
        ("2026-03-01T12:00:00Z,team,p,more", None),
        ("2026-03-01T12:00:00Z," + "n" * 2000 + ",p", None),
    ],
)
def test_locks_of_every_release_are_read_and_anything_else_is_none(
    text: str | None, lock: NodeLock | None
) -> None:
    assert node_lock_annotation.read(text) == lock


def test_lock_belongs_to_one_pod_and_an_old_one_to_none() -> None:
    lock = NodeLock(NOW, "team", "p")
    assert lock.is_of("team", "p")
    assert not lock.is_of("other", "p")
    assert not lock.is_of("team", "q")
    assert not NodeLock(NOW).is_of("team", "p")


@pytest.mark.parametrize(
    ("since", "expired"),
    [
        (NOW, False),
        (NOW - EXPIRES_AFTER, False),
        (NOW - EXPIRES_AFTER - SECOND, True),
        (NOW + EXPIRES_AFTER, False),
        (NOW + EXPIRES_AFTER + SECOND, True),
        (datetime.max.replace(tzinfo=timezone(-timedelta(hours=23))), True),
        (datetime.min.replace(tzinfo=timezone(timedelta(hours=23))), True),
    ],
)
def test_a_lock_holds_for_five_minutes_and_not_from_a_wrong_clock(
    since: datetime, expired: bool
) -> None:
    assert NodeLock(since).expired(NOW) is expired
