"""Commands that arrive a second time, late, as a forwarded one may."""

from support.charging import NAMESPACE, create, seen, tell, with_limit


def test_a_late_duplicate_does_not_take_the_place_of_the_attempt_after_it() -> None:
    state = with_limit(100)
    tell(state, create("u1", 60, "web-abc", stamp="s"))
    tell(state, create("u2", 60, "web-xyz", stamp="s"))
    assert tell(state, create("u1", 60, "web-abc", stamp="s")) == []
    assert list(state.namespaces[NAMESPACE].entries) == ["pods/web-xyz"]


def test_a_late_duplicate_of_a_superseded_attempt_holds_nothing_after_the_commit() -> None:
    state = with_limit(200)
    tell(state, create("u1", 60, "web-abc", stamp="s"))
    tell(state, create("u2", 60, "web-xyz", stamp="s"))
    tell(state, seen("u2", 5, 60, "web-xyz"))
    assert tell(state, create("u1", 60, "web-abc", stamp="s")) == []
    assert state.used == [60]


def test_a_superseded_attempt_that_was_written_all_the_same_is_charged() -> None:
    state = with_limit(200)
    tell(state, create("u1", 60, "web-abc", stamp="s"))
    tell(state, create("u2", 60, "web-xyz", stamp="s"))
    tell(state, seen("u1", 5, 60, "web-abc"))
    assert state.used == [120]
