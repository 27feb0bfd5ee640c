"""Handshakes: when the cards of a node count although its plugin does not answer."""

import time
from datetime import UTC, datetime, timedelta, timezone

import pytest

from ledger.kube.hami.plugin_handshake import handshake_alive

NOW = datetime(2026, 3, 1, 12, 0, 0, tzinfo=UTC)
FRESH, OLD = "Requesting_2026-03-01 11:59:01", "Requesting_2026-03-01 11:59:00"


@pytest.mark.parametrize(
    ("value", "allocatable", "alive"),
    [
        (None, 0, True),
        ("", 0, True),
        ("Reported 2020-01-01 00:00:00", 0, True),
        ("Deleted_2020-01-01 00:00:00", 0, True),
        ("Requesting", 0, True),
        ("Requesting_then", 0, True),
        ("Requesting_2026-03-01 11:59:00 and more", 0, True),
        ("Requesting_2026-03-02 12:00:00", 0, True),
        (FRESH, 0, True),
        (OLD, 0, False),
        (OLD, 1, True),
    ],
)
def test_handshake_is_dead_when_request_is_old_and_no_card_is_allocatable(
    value: str | None, allocatable: int, alive: bool
) -> None:
    assert handshake_alive(value, NOW, allocatable) is alive


@pytest.fixture
def elsewhere(monkeypatch):
    """Let the machine be in another time zone."""
    monkeypatch.setenv("TZ", "UTC-8")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.mark.usefixtures("elsewhere")
def test_the_zone_of_the_own_clock_does_not_matter() -> None:
    there = NOW.astimezone(timezone(timedelta(hours=8)))
    assert handshake_alive(FRESH, there, 0)
    assert not handshake_alive(OLD, there, 0)
