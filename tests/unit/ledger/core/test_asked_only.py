"""Accounts that many namespaces share count workloads as far as they were asked for."""

from support.builders.quota_commands import KEY, NAMESPACE, kinds, mib, tell

from ledger.core import invariants, snapshot_format
from ledger.core.model import accounts, commands
from ledger.core.model.denials import Denial
from ledger.core.model.state import State
from ledger.core.model.traits import Reach

OWN = accounts.quota("c1", "team", "main")
SHARED = accounts.universe("all")
ROOT = "deployments.apps/web"


def world(own: int = 100, shared: int = 5) -> State:
    """Return a namespace with a quota of its own and a share in another, in MiB."""
    state = State()
    tell(state, commands.SetLimits(OWN, (NAMESPACE,), {KEY: own}))
    tell(state, commands.SetLimits(SHARED, (), {KEY: shared}, reach=Reach(), asked_only=True))
    return state


def asks(amount: int, base: int = 0) -> commands.Reserve:
    return commands.Reserve(NAMESPACE, ROOT, "u", mib(amount), base=base)


def is_seen(amount: int, version: int) -> commands.Observe:
    return commands.Observe(NAMESPACE, ROOT, "u", version, mib(amount))


def pod(number: int, amount: int = 1) -> commands.Reserve:
    return commands.Reserve(NAMESPACE, f"pods/p{number}", f"p{number}", mib(amount), root=ROOT)


def used(state: State) -> tuple[int, int]:
    """Return the amounts of the own and the shared account, after a check of all invariants."""
    assert list(invariants.violations(state)) == []
    copy = snapshot_format.decode(snapshot_format.encode(state))
    assert (copy.used, copy.accounts) == (state.used, state.accounts)
    assert list(invariants.violations(copy)) == []
    own, shared = (state.accounts[account].lines[KEY] for account in (OWN, SHARED))
    return state.used[own], state.used[shared]


def scaled_unseen(state: State) -> None:
    """Let a workload of 1 become one of 6 without a review."""
    assert kinds(tell(state, asks(1))) == ["Reserved"]
    tell(state, is_seen(1, 1))
    assert kinds(tell(state, is_seen(6, 2))) == ["Observed unreserved"]


def test_what_no_review_saw_is_charged_to_the_namespace_alone() -> None:
    state = world()
    scaled_unseen(state)
    assert used(state) == (6, 1)


def test_a_workload_that_was_never_reviewed_counts_by_its_pods() -> None:
    state = world()
    tell(state, is_seen(6, 2))
    assert used(state) == (6, 0)
    tell(state, pod(1, 2))
    assert used(state) == (6, 2)


def test_pods_of_it_take_shared_room_one_by_one_as_long_as_there_is_some() -> None:
    state = world(shared=3)
    scaled_unseen(state)
    for number, shared in ((1, 1), (2, 2), (3, 3)):
        assert kinds(tell(state, pod(number))) == ["Reserved"]
        assert used(state) == (6, shared)
    assert isinstance(tell(state, pod(4)), Denial)


def test_the_next_update_asks_for_all_of_it() -> None:
    state = world(shared=7)
    scaled_unseen(state)
    assert kinds(tell(state, asks(7, base=2))) == ["Reserved"]
    assert used(state) == (7, 7)
    tell(state, is_seen(7, 3))
    assert used(state) == (7, 7)


def test_an_update_is_refused_where_all_of_it_has_no_shared_room() -> None:
    state = world(shared=6)
    scaled_unseen(state)
    assert isinstance(tell(state, asks(7, base=2)), Denial)
    assert used(state) == (6, 1)


def test_admitted_part_of_an_update_counts_when_it_is_not_written() -> None:
    state = world(shared=7)
    scaled_unseen(state)
    tell(state, asks(7, base=2))
    tell(state, commands.Refute(NAMESPACE, ROOT, "u", 2))
    assert used(state) == (6, 6)


def test_what_a_pod_takes_along_is_not_counted_twice() -> None:
    """A pod that leaves its root counts by itself; the root may not have another in its place."""
    state = world()
    tell(state, asks(2))
    tell(state, is_seen(2, 1))
    tell(state, pod(1))
    assert used(state) == (2, 2)
    tell(state, commands.Observe(NAMESPACE, "pods/p1", "p1", 3, mib(1)))
    assert used(state) == (3, 2)


def test_account_with_a_changed_selection_is_counted_again() -> None:
    state = world()
    scaled_unseen(state)
    everything = commands.SetLimits(SHARED, (), {KEY: 5}, reach=Reach())
    assert kinds(tell(state, everything)) == ["LimitSet"]
    assert used(state) == (6, 6)
    again = commands.SetLimits(SHARED, (), {KEY: 5}, reach=Reach(), asked_only=True)
    assert kinds(tell(state, again)) == ["LimitSet"]
    assert used(state) == (6, 1)
    assert kinds(tell(state, again)) == []
