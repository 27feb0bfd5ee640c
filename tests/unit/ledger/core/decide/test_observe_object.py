"""Settling: commits, fences, proofs, and truth that always wins."""

from support.builders.quota_commands import (
    KEY,
    MEMORY,
    NAMESPACE,
    QUOTA,
    absent,
    create,
    ended,
    kinds,
    seen,
    tell,
    update,
    with_limit,
)

from ledger.core.model import commands
from ledger.core.model.denials import Denial, Reason
from ledger.core.model.state import State


def committed(state: State, name: str = "p") -> tuple[str, int, int]:
    entry = state.namespaces[NAMESPACE].entries[f"pods/{name}"]
    assert entry.committed is not None
    return entry.committed.uid, entry.committed.version, entry.committed.demand.get(MEMORY, 0)


def test_the_sight_of_the_object_commits_its_hold() -> None:
    state = with_limit(100)
    tell(state, create("u1", 40))
    assert kinds(tell(state, seen("u1", 5, 40))) == ["Committed"]
    assert committed(state) == ("u1", 5, 40)
    assert state.used == [40]


def test_the_commit_takes_the_demand_that_was_really_stored() -> None:
    state = with_limit(100)
    tell(state, create("u1", 40))
    tell(state, seen("u1", 5, 30))
    assert state.used == [30]


def test_a_status_change_writes_nothing() -> None:
    state = with_limit(100)
    tell(state, create("u1", 40))
    tell(state, seen("u1", 5, 40))
    assert tell(state, seen("u1", 6, 40)) == []


def test_news_from_the_past_changes_nothing() -> None:
    state = with_limit(100)
    tell(state, create("u1", 40))
    tell(state, seen("u1", 9, 40))
    assert tell(state, seen("u1", 5, 90)) == []


def test_a_newer_version_ends_every_update_on_an_older_one() -> None:
    state = with_limit(100)
    tell(state, create("u1", 10))
    tell(state, seen("u1", 5, 10))
    tell(state, update("u1", 5, 50))
    tell(state, update("u1", 6, 60))
    assert kinds(tell(state, seen("u1", 7, 50))) == ["Committed", "Released fenced"]
    assert state.used == [50]


def test_an_update_on_a_newer_base_outlives_the_fence() -> None:
    state = with_limit(100)
    tell(state, create("u1", 10))
    tell(state, seen("u1", 5, 10))
    tell(state, update("u1", 8, 60))
    assert tell(state, seen("u1", 7, 10)) == []
    assert state.used == [60]


def test_a_decrease_frees_when_it_is_seen_persisted() -> None:
    state = with_limit(100)
    tell(state, create("u1", 80))
    tell(state, seen("u1", 5, 80))
    assert kinds(tell(state, seen("u1", 6, 20))) == ["Committed"]
    assert state.used == [20]


def test_what_was_never_reserved_is_charged_over_the_limit_and_marked() -> None:
    state = with_limit(100)
    assert kinds(tell(state, seen("u1", 5, 150))) == ["Observed unreserved"]
    assert state.used == [150]


def test_object_larger_than_its_hold_is_charged_in_full_and_marked() -> None:
    state = with_limit(100)
    tell(state, create("u1", 80))
    assert kinds(tell(state, seen("u1", 5, 120))) == ["Observed unreserved"]
    assert state.used == [120]
    assert state.namespaces[NAMESPACE].entries["pods/p"].holds == ()


def test_late_observation_is_charged_after_a_proof_and_marked() -> None:
    state = with_limit(100)
    tell(state, create("u1", 40))
    assert kinds(tell(state, absent("u1"))) == ["Released absent"]
    assert kinds(tell(state, seen("u1", 5, 40))) == ["Observed late"]
    assert state.used == [40]


def test_a_proof_about_nothing_open_does_nothing() -> None:
    state = with_limit(100)
    tell(state, create("u1", 40))
    tell(state, seen("u1", 5, 40))
    assert tell(state, absent("u1")) == []
    assert tell(state, absent("u9")) == []


def test_proof_about_an_earlier_request_keeps_the_repeated_update() -> None:
    state = with_limit(100)
    tell(state, create("u1", 10))
    tell(state, seen("u1", 5, 10))
    tell(state, update("u1", 5, 50))
    proof = commands.Refute(NAMESPACE, "pods/p", "u1", 5, raises=0)
    tell(state, update("u1", 5, 50))
    assert tell(state, proof) == []
    assert state.used == [50]
    assert kinds(tell(state, absent("u1", 5))) == ["Released absent"]


def test_deletion_frees_the_object_and_its_updates() -> None:
    state = with_limit(100)
    tell(state, create("u1", 10))
    tell(state, seen("u1", 5, 10))
    tell(state, update("u1", 5, 50))
    assert kinds(tell(state, ended("u1", 9))) == ["Released deleted", "Released fenced"]
    assert state.used == [0]
    assert state.namespaces[NAMESPACE].entries == {}


def test_an_object_deleted_before_it_was_seen_ends_its_hold() -> None:
    state = with_limit(100)
    tell(state, create("u1", 10))
    assert kinds(tell(state, ended("u1", 9))) == ["Released deleted"]


def test_stale_news_of_a_deleted_object_charges_nothing() -> None:
    state = with_limit(100)
    tell(state, create("u1", 10))
    tell(state, seen("u1", 5, 10))
    tell(state, ended("u1", 9))
    assert tell(state, seen("u1", 8, 10)) == []


def test_a_deletion_of_another_uid_leaves_the_newcomer_alone() -> None:
    state = with_limit(100)
    tell(state, create("u2", 10))
    tell(state, seen("u2", 9, 10))
    assert tell(state, ended("u1", 8)) == []


def test_another_object_at_the_key_ends_the_old_one() -> None:
    state = with_limit(100)
    tell(state, create("u1", 60))
    tell(state, seen("u1", 5, 60))
    tell(state, create("u2", 70))
    assert kinds(tell(state, seen("u2", 9, 70))) == ["Released deleted", "Committed"]
    assert state.used == [70]


def test_the_loser_of_two_creations_stays_held_until_it_is_proved_dead() -> None:
    state = with_limit(100)
    tell(state, create("u1", 60))
    tell(state, create("u2", 70))
    tell(state, seen("u1", 5, 60))
    assert state.used == [70]
    tell(state, absent("u2"))
    assert state.used == [60]


def test_a_new_key_in_a_quota_counts_what_is_already_there() -> None:
    state = with_limit(100)
    tell(state, create("u1", 60))
    other = f"requests.{MEMORY}"
    tell(state, commands.SetLimits(QUOTA, (NAMESPACE,), {KEY: 100, other: 50}))
    assert state.used == [60, 60]


def test_limit_key_counts_only_while_it_is_in_the_quota() -> None:
    state = with_limit(100)
    tell(state, create("u1", 60))
    tell(state, commands.SetLimits(QUOTA, (NAMESPACE,), {}))
    assert state.used == [0]
    tell(state, commands.SetLimits(QUOTA, (NAMESPACE,), {KEY: 80}))
    assert state.used == [0, 60]


def test_a_closed_account_limits_nothing() -> None:
    state = with_limit(0)
    tell(state, commands.CloseAccount(QUOTA))
    assert kinds(tell(state, create("u1", 10))) == ["Reserved"]
    assert state.used == [0]


def test_cluster_name_stays_bound_to_the_first_uid() -> None:
    state = State()
    assert kinds(tell(state, commands.RegisterCluster("c1", "uid-a"))) == ["ClusterRegistered"]
    assert tell(state, commands.RegisterCluster("c1", "uid-a")) == []
    denial = tell(state, commands.RegisterCluster("c1", "uid-b"))
    assert isinstance(denial, Denial)
    assert denial.reason is Reason.CLUSTER_NAME_TAKEN
