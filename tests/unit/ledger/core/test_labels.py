"""Labels: keys that accounts select by are numbered, and what was not read counts as selected."""

import msgspec
import pytest
from support.builders.quota_commands import KEY, mib, tell

from ledger.core import invariants, snapshot_format
from ledger.core.model import accounts, commands, traits
from ledger.core.model.denials import Denial
from ledger.core.model.state import State
from ledger.core.model.traits import READ, Numbered, Reach, Requirement, Selection

TEAM = (Requirement("team", "In", ("a",)),)
TIER = (Requirement("tier", "NotIn", ("gold",)),)
ONE, OTHER = accounts.universe("one"), accounts.universe("other")


def limit(state: State, account: str, selects: Selection, amount: int = 100) -> None:
    tell(state, commands.SetLimits(account, (), {KEY: amount}, reach=Reach(), selects=selects))


def observe(state: State, name: str, version: int, *texts: str) -> None:
    where = ("c1/a", f"pods/{name}", f"uid-{name}", version)
    tell(state, commands.Observe(*where, mib(10), traits=texts))


def used(state: State, account: str = ONE) -> int:
    return state.used[state.accounts[account].lines[KEY]]


def test_what_was_not_read_counts_until_it_is() -> None:
    state = State()
    observe(state, "p", 1)
    observe(state, "q", 1)
    limit(state, ONE, TEAM)
    assert used(state) == 20
    observe(state, "p", 1, "!read=1")
    assert used(state) == 10
    observe(state, "q", 1, "!read=1,team=a")
    assert used(state) == 10
    assert list(invariants.violations(state)) == []


def test_an_attempt_that_was_read_without_the_label_is_held_to_the_limit() -> None:
    state = State()
    limit(state, ONE, TEAM, 15)
    create = commands.Reserve("c1/a", "pods/p", "uid-p", mib(10))
    assert not isinstance(tell(state, create), Denial)
    beside = msgspec.structs.replace(create, key="pods/q", uid="uid-q")
    assert isinstance(tell(state, beside), Denial)
    read = msgspec.structs.replace(beside, traits=("!read=1",))
    assert not isinstance(tell(state, read), Denial)
    assert used(state) == 10


def test_a_key_has_one_number_for_all_accounts_and_never_the_same_again() -> None:
    state = State()
    limit(state, ONE, TEAM)
    limit(state, OTHER, (*TEAM, *TIER))
    assert state.labels == {"team": 1, "tier": 2, READ: 2}
    tell(state, commands.CloseAccount(OTHER))
    assert state.labels == {"team": 1, READ: 2}
    observe(state, "p", 1, "!read=2")
    limit(state, OTHER, TIER)
    assert state.labels == {"team": 1, "tier": 3, READ: 3}
    assert used(state, OTHER) == 10, "the tier was not read while no account named it"
    assert used(state) == 0


def test_an_older_look_at_the_same_version_changes_nothing() -> None:
    state = State()
    limit(state, ONE, TEAM)
    observe(state, "p", 5, "!read=1")
    observe(state, "p", 5)
    assert used(state) == 0
    observe(state, "p", 6)
    assert used(state) == 10, "the label of the newer version was not read"


def test_digest_meets_every_condition_on_keys_that_are_not_recorded() -> None:
    numbered = (Numbered("team", "In", ("a",), 1),)
    assert traits.matches(numbered, ("!unread=00",))
    assert traits.matches((Requirement("!priority", "Exists"),), ("!unread=00",))
    name = (Requirement(traits.NAME, "In", ("x",)),)
    assert not traits.matches(name, ("!name=y,!unread=00",))
    assert not traits.is_read(numbered, ("!unread=00",))


@pytest.mark.parametrize("texts", [("!read=1",), ("!read=1,team=b",), ("team=b",)])
def test_recorded_labels_decide_the_selection(texts: tuple[str, ...]) -> None:
    numbered = (Numbered("team", "In", ("a",), 1),)
    assert not traits.matches(numbered, texts)
    assert traits.is_read(numbered, texts)


def test_numbers_of_labels_are_in_snapshots_and_go_with_what_is_taken_back() -> None:
    state = State()
    observe(state, "p", 1)
    before = snapshot_format.encode(state)
    state.journal = []
    limit(state, ONE, TEAM)
    state.undo()
    state.journal = None
    assert snapshot_format.encode(state) == before
    limit(state, ONE, TEAM)
    again = snapshot_format.decode(snapshot_format.encode(state))
    assert again.labels == state.labels
    assert again.namespaces["c1/a"].selected == state.namespaces["c1/a"].selected
