"""Reach and traits: quotas that select namespaces by labels, and objects by what they are."""

import pytest
from support.builders.quota_commands import KEY, kinds, mib, tell

from ledger.core import invariants, snapshot_format
from ledger.core.model import accounts, commands, traits
from ledger.core.model.denials import Denial, Reason, sentence
from ledger.core.model.state import State
from ledger.core.model.traits import Reach, Requirement, Traits

ALL = accounts.universe("all")
GOLD = Reach(namespaces=(Requirement("tier", "In", ("gold",)),))
EUROPE = Reach(clusters=(Requirement("!region", "In", ("europe",)),))
HIGH = (Requirement("!priority", "In", ("high",)),)


def limited(limit: int, reach: Reach, selects: traits.Selection = ()) -> State:
    state = State()
    tell(state, commands.SetLimits(ALL, (), {KEY: limit}, reach=reach, selects=selects))
    return state


def pod(namespace: str, name: str, amount: int, *texts: str, **more) -> commands.Reserve:
    return commands.Reserve(
        namespace, f"pods/{name}", f"uid-{name}", mib(amount), traits=texts, **more
    )


def test_everything_is_reached_that_no_condition_excludes() -> None:
    state = limited(100, Reach())
    tell(state, pod("c1/a", "p", 60))
    denial = tell(state, pod("c2/b", "q", 60))
    assert isinstance(denial, Denial)
    assert denial.reason is Reason.UNIVERSE_EXCEEDED
    assert [holder.key for holder in denial.holders] == ["c1/a"]


def test_denial_names_other_namespaces_by_share_and_no_objects() -> None:
    state = limited(100, Reach())
    for namespace, name, amount in (("c1/a", "p", 20), ("c1/a", "q", 30), ("c1/b", "mine", 40)):
        tell(state, pod(namespace, name, amount))
    denial = tell(state, pod("c1/b", "more", 20))
    assert isinstance(denial, Denial)
    held = [(holder.key, holder.amount, bool(holder.since)) for holder in denial.holders]
    assert [holder[:2] for holder in held] == [("c1/a", 50), ("pods/mine", 40)]
    assert not held[0][2], "nor since when"
    assert "Used by: c1/a 50, pods/mine 40." in sentence(denial)
    assert denial.holders_more == 0


def test_denial_with_own_holders_names_no_other_namespace() -> None:
    state = limited(100, Reach())
    for number in range(4):
        tell(state, pod(f"c1/a{number}", f"p{number}", 20))
    tell(state, pod("c1/b", "mine", 10))
    denial = tell(state, pod("c1/b", "more", 20, own_holders=True))
    assert isinstance(denial, Denial)
    assert [holder.key for holder in denial.holders] == ["pods/mine"]
    assert denial.holders_more == 0
    assert "c1/a" not in sentence(denial)


@pytest.mark.parametrize(
    ("used", "asked", "remedy"),
    [
        (40, 25, "Try again when 15 MiB are released: at most 10 MiB now"),
        (50, 25, "Try again when 25 MiB are released: nothing is free now"),
        (0, 101, "It can never fit: at most 50 MiB"),
    ],
)
def test_what_a_denial_advises_passes_every_quota_of_the_resource(
    used: int, asked: int, remedy: str
) -> None:
    state = limited(90, Reach())
    tell(state, commands.SetLimits(accounts.quota("c1", "a", "own"), ("c1/a",), {KEY: 50}))
    tell(state, pod("c1/b", "beside", 30))
    tell(state, pod("c1/a", "p", used))
    denial = tell(state, pod("c1/a", "q", asked))
    assert isinstance(denial, Denial)
    assert [shortage.account for shortage in denial.shortages] == [
        ALL,
        accounts.quota("c1", "a", "own"),
    ]
    assert denial.remedy == remedy


def test_the_first_pod_of_an_unknown_namespace_is_counted() -> None:
    state = limited(50, Reach(namespaces=(Requirement("!name", "In", ("a",)),)))
    assert isinstance(tell(state, pod("c1/a", "p", 60)), Denial)
    assert kinds(tell(state, pod("c1/other", "p", 60))) == ["Reserved"]
    assert state.used == [0]


def test_a_label_moves_what_a_namespace_holds_in_one_event() -> None:
    state = limited(100, GOLD)
    tell(state, pod("c1/a", "p", 60))
    assert state.used == [0]
    assert kinds(tell(state, commands.Describe("c1/a", "!name=a,tier=gold"))) == ["Described"]
    assert state.used == [60]
    assert isinstance(tell(state, pod("c1/a", "q", 50)), Denial)
    tell(state, commands.Describe("c1/a", "!name=a"))
    assert state.used == [0]


def test_the_same_description_again_changes_nothing() -> None:
    state = limited(100, GOLD)
    tell(state, commands.Describe("c1/a", "tier=gold"))
    assert tell(state, commands.Describe("c1/a", "tier=gold")) == []


def test_an_older_description_does_not_undo_a_newer_one() -> None:
    state = limited(100, GOLD)
    tell(state, pod("c1/a", "p", 60))
    tell(state, commands.Describe("c1/a", "tier=gold", version=7))
    assert tell(state, commands.Describe("c1/a", "!name=a", version=6)) == []
    assert tell(state, commands.Describe("c1/a", "!name=a")) == []
    assert state.used == [60]
    again = snapshot_format.decode(snapshot_format.encode(state))
    assert tell(again, commands.Describe("c1/a", "!name=a", version=6)) == []
    assert kinds(tell(again, commands.Describe("c1/a", "!name=a", version=8))) == ["Described"]
    assert again.used == [0]


def test_what_is_gone_is_forgotten_with_its_version_and_goes_by_its_name() -> None:
    state = limited(100, Reach(namespaces=(Requirement("!name", "In", ("a",)),)))
    tell(state, pod("c1/a", "p", 60))
    tell(state, commands.Describe("c1/a", "!name=a,tier=gold", version=7))
    assert tell(state, commands.Describe("c1/a", "", version=6)) == []
    assert kinds(tell(state, commands.Describe("c1/a", "", version=8))) == ["Described"]
    assert (state.described, state.described_at) == ({}, {})
    assert state.used == [60]
    assert tell(state, commands.Describe("c1/a", "", version=9)) == []


def test_a_label_of_what_is_gone_reaches_nothing_any_more() -> None:
    state = limited(100, GOLD)
    tell(state, pod("c1/a", "p", 60))
    tell(state, commands.Describe("c1/a", "!name=a,tier=gold"))
    tell(state, commands.Describe("c1/a", ""))
    assert state.used == [0]


def test_snapshot_has_every_namespace_that_a_quota_may_reach() -> None:
    live = State()
    tell(live, commands.Describe("c1/a", "!name=a,tier=gold"))
    tell(live, pod("c1/b", "p", 60))
    tell(live, commands.End("c1/b", "pods/p", "uid-p", 0, "deleted"))
    restored = snapshot_format.decode(snapshot_format.encode(live))
    for state in (live, restored):
        tell(state, commands.SetLimits(ALL, (), {KEY: 100}, reach=Reach()))
        assert state.accounts[ALL].covers == ("c1/a", "c1/b")
    assert snapshot_format.encode(restored) == snapshot_format.encode(live)


def test_a_cluster_that_moves_takes_its_namespaces_along() -> None:
    state = limited(100, EUROPE)
    tell(state, pod("c1/a", "p", 60))
    tell(state, pod("c2/a", "q", 30))
    tell(state, commands.Describe("c1", "!name=c1,!region=europe"))
    assert state.used == [60]
    tell(state, commands.Describe("c2", "!name=c2,!region=europe"))
    assert state.used == [90]
    tell(state, commands.Describe("c1", "!name=c1,!region=asia"))
    assert state.used == [30]


def test_changed_reach_counts_its_new_selection() -> None:
    state = limited(100, GOLD)
    tell(state, pod("c1/a", "p", 60))
    tell(state, commands.SetLimits(ALL, (), {KEY: 100}, reach=Reach()))
    assert state.used == [60]


def test_a_reach_may_bring_more_than_the_limit_and_then_blocks() -> None:
    state = limited(50, GOLD)
    tell(state, pod("c1/a", "p", 60))
    tell(state, commands.Describe("c1/a", "tier=gold"))
    assert state.used == [60]
    assert isinstance(tell(state, pod("c1/a", "q", 1)), Denial)


def test_a_quota_with_conditions_counts_only_what_meets_them() -> None:
    state = limited(100, Reach(), HIGH)
    tell(state, pod("c1/a", "low", 500))
    tell(state, pod("c1/a", "high", 60, "!priority=high"))
    assert state.used == [60]
    assert isinstance(tell(state, pod("c1/a", "more", 50, "!priority=high")), Denial)


def test_pods_count_by_the_traits_of_their_root() -> None:
    state = limited(100, Reach(), HIGH)
    web = "deployments.apps/web"
    tell(
        state,
        commands.Reserve("c1/a", web, "r", mib(40), traits=("!priority=high",)),
    )
    tell(state, pod("c1/a", "p", 60, "app=web", root=web))
    assert state.used == [60]
    tell(state, commands.Refute("c1/a", web, "r", 0))
    assert state.used == [0]


def test_changed_label_is_charged_in_both_quotas_until_it_is_stored() -> None:
    selects = (Requirement("app", "In", ("b",)),)
    state = limited(100, Reach(), selects)
    tell(state, pod("c1/a", "p", 60, "app=a"))
    tell(state, commands.Observe("c1/a", "pods/p", "uid-p", 5, mib(60), traits=("app=a",)))
    tell(state, pod("c1/a", "p", 60, "app=b", base=5))
    assert state.used == [60]
    moved = tell(state, commands.Observe("c1/a", "pods/p", "uid-p", 6, mib(60), traits=("app=b",)))
    assert kinds(moved) == ["Committed"]
    assert state.used == [60]


def test_a_label_changed_behind_our_back_is_truth_and_no_drift() -> None:
    state = limited(100, Reach(), (Requirement("app", "In", ("b",)),))
    tell(state, commands.Observe("c1/a", "pods/p", "u", 5, mib(160), traits=("app=a",)))
    moved = tell(state, commands.Observe("c1/a", "pods/p", "u", 6, mib(160), traits=("app=b",)))
    assert kinds(moved) == ["Observed moved"]
    assert state.used == [160]


def test_an_older_version_of_a_quota_does_not_undo_a_newer_one() -> None:
    state = State()
    account = accounts.quota("c1", "a", "q")
    tell(state, commands.SetLimits(account, ("c1/a",), {KEY: 10}, version=7))
    assert tell(state, commands.SetLimits(account, ("c1/a",), {KEY: 99}, version=6)) == []
    assert state.limit == [10]
    tell(state, commands.SetLimits(account, ("c1/a",), {KEY: 20}, version=8))
    assert state.limit == [20]


def test_an_account_reaches_nothing_more_once_it_names_its_namespaces() -> None:
    state = limited(100, Reach())
    tell(state, commands.SetLimits(ALL, ("c1/a",), {KEY: 100}))
    tell(state, pod("c1/b", "p", 60))
    assert state.used == [0]
    assert list(invariants.violations(state)) == []


def test_an_account_that_is_closed_reaches_nothing_more() -> None:
    state = limited(100, Reach())
    tell(state, commands.CloseAccount(ALL))
    tell(state, pod("c1/a", "p", 60))
    assert state.used == [0]
    assert list(invariants.violations(state)) == []


def test_what_is_taken_back_reaches_nothing() -> None:
    state = State()
    with state.trying():
        tell(state, commands.SetLimits(ALL, (), {KEY: 100}, reach=Reach()))
    assert list(invariants.violations(state)) == []


def test_a_restored_account_still_reaches_new_namespaces() -> None:
    state = snapshot_format.decode(snapshot_format.encode(limited(100, Reach())))
    tell(state, pod("c1/a", "p", 60))
    assert state.used == [60]
    assert list(invariants.violations(state)) == []


@pytest.mark.parametrize(
    ("requirement", "matching", "other"),
    [
        (Requirement("a", "In", ("1", "2")), ("a=1",), ("a=3",)),
        (Requirement("a", "NotIn", ("1",)), (), ("a=1",)),
        (Requirement("a", "Exists"), ("a=", "b=1"), ("b=1",)),
        (Requirement("a", "DoesNotExist"), ("b=1",), ("a=1",)),
        (Requirement("!terminating", "Exists"), ("!terminating,a=1",), ()),
    ],
)
def test_conditions_mean_what_they_mean_in_kubernetes(
    requirement: Requirement, matching: Traits, other: Traits
) -> None:
    assert traits.matches((requirement,), matching)
    assert not traits.matches((requirement,), other)


def test_any_template_that_is_selected_selects_the_object() -> None:
    assert traits.matches(HIGH, ("app=head", "!priority=high"))
    assert traits.united((), ("a=1",)) == ("", "a=1")


def test_a_text_is_sorted_by_key() -> None:
    assert traits.text_of({"b": "2", "!terminating": "", "a": "1"}) == "!terminating,a=1,b=2"


def test_an_account_without_limits_covers_its_namespaces_all_the_same() -> None:
    state = State()
    tell(state, commands.SetLimits(accounts.universe("all"), ("c1/red",), {}))
    assert list(invariants.violations(state)) == []
    assert state.namespaces["c1/red"].accounts == (accounts.universe("all"),)
