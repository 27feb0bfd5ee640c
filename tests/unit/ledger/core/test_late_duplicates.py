"""Commands that arrive a second time, late, as a forwarded one may."""

from support.builders.quota_commands import NAMESPACE, create, ended, kinds, seen, tell, with_limit

from ledger.core.model import commands


def test_a_late_duplicate_of_what_is_stored_holds_nothing() -> None:
    state = with_limit(100)
    tell(state, create("u1", 60, "web-abc"))
    tell(state, seen("u1", 5, 60, "web-abc"))
    assert tell(state, create("u1", 60, "web-abc")) == []


def test_a_late_duplicate_of_what_has_come_and_gone_holds_nothing() -> None:
    state = with_limit(100)
    tell(state, create("u1", 60, "web-abc"))
    tell(state, seen("u1", 5, 60, "web-abc"))
    tell(state, ended("u1", 6, name="web-abc"))
    assert tell(state, create("u1", 60, "web-abc")) == []
    assert state.used == [0]


def test_late_duplicate_of_a_refuted_hold_is_held_until_refuted_again() -> None:
    state = with_limit(100)
    refute = commands.Refute(NAMESPACE, "pods/web-abc", "u1", 0)
    tell(state, create("u1", 60, "web-abc"))
    tell(state, refute)
    assert kinds(tell(state, create("u1", 60, "web-abc"))) == ["Reserved"]
    assert kinds(tell(state, refute)) == ["Released absent"]
    assert state.used == [0]
