"""Roots: an envelope and the pods that draw from it are charged once, at the larger of the two."""

import msgspec
import pytest
from support.builders.quota_commands import (
    KEY,
    MEMORY,
    NAMESPACE,
    QUOTA,
    ended,
    kinds,
    mib,
    tell,
    with_limit,
)

from ledger.core.decide import denial_holders
from ledger.core.evolve import envelope_charges
from ledger.core.model import commands, traits
from ledger.core.model.amounts import Amounts
from ledger.core.model.denials import Denial, Reason, sentence
from ledger.core.model.state import State

WEB = "deployments.apps/web"


def root(uid: str, amount: int, base: int = 0, key: str = WEB, **more) -> commands.Reserve:
    return commands.Reserve(NAMESPACE, key, uid, mib(amount), base, **more)


def root_seen(uid: str, version: int, amount: int, generation: int = 0) -> commands.Observe:
    return commands.Observe(
        NAMESPACE, WEB, uid, version, mib(amount) if amount else {}, generation=generation
    )


def pod(name: str, amount: int, drawn_from: str = WEB, **more) -> commands.Reserve:
    return commands.Reserve(
        NAMESPACE, f"pods/{name}", f"uid-{name}", mib(amount), root=drawn_from, **more
    )


def pod_seen(name: str, amount: int, version: int = 50, drawn_from: str = WEB) -> commands.Observe:
    return commands.Observe(
        NAMESPACE, f"pods/{name}", f"uid-{name}", version, mib(amount), root=drawn_from
    )


def running(limit: int, envelope: int) -> State:
    """A committed root under a limit."""
    state = with_limit(limit)
    tell(state, root("r", envelope))
    tell(state, root_seen("r", 10, envelope, generation=1))
    return state


def test_pods_within_the_envelope_cost_nothing() -> None:
    state = running(100, 100)
    for name in ("a", "b"):
        assert kinds(tell(state, pod(name, 50))) == ["Reserved"]
    assert state.used == [100]


def test_a_pod_beyond_the_envelope_needs_room_for_the_excess_only() -> None:
    state = running(110, 100)
    tell(state, pod("a", 60))
    assert kinds(tell(state, pod("b", 50))) == ["Reserved"]
    assert state.used == [110]


def test_denial_of_a_pod_beyond_its_envelope_names_the_envelope() -> None:
    state = running(100, 100)
    tell(state, pod("a", 60))
    denial = tell(state, pod("b", 50))
    assert isinstance(denial, Denial)
    assert denial.reason is Reason.QUOTA_EXCEEDED
    assert denial.shortages[0].short == 10
    assert f"beyond the envelope of {WEB}, of which its pods take 60 of 100 MiB" in sentence(denial)
    assert state.used == [100]


def test_the_holder_of_an_envelope_is_the_root() -> None:
    state = running(100, 100)
    tell(state, pod("a", 60))
    denial = tell(state, pod("stranger", 10, drawn_from=""))
    assert isinstance(denial, Denial)
    assert [(holder.key, holder.amount) for holder in denial.holders] == [(WEB, 100)]


def test_a_denial_looks_at_a_bounded_number_of_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(denial_holders, "HOLDERS_SCANNED_MAX", 3)
    state = running(100, 60)
    for name in "abc":
        tell(state, pod(name, 20))
    tell(state, pod("later", 40, drawn_from=""))
    denial = tell(state, pod("stranger", 10, drawn_from=""))
    assert isinstance(denial, Denial)
    assert [holder.key for holder in denial.holders] == [WEB]
    assert denial.holders_more == 0


def test_a_denial_looks_at_roots_before_pods(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(denial_holders, "HOLDERS_SCANNED_MAX", 1)
    state = with_limit(100)
    tell(state, pod("first", 40, drawn_from=""))
    for name in "abc":
        tell(state, pod(name, 20))
    denial = tell(state, pod("stranger", 10, drawn_from=""))
    assert isinstance(denial, Denial)
    assert [(holder.key, holder.amount) for holder in denial.holders] == [(WEB, 60)]


def test_a_barred_pod_takes_no_share_of_the_envelope() -> None:
    state = running(100, 100)
    assert isinstance(tell(state, pod("forged", 10, drawn_from=commands.BARRED)), Denial)
    state = running(110, 100)
    tell(state, pod("forged", 10, drawn_from=commands.BARRED))
    assert state.used == [110]


def test_barred_pod_stays_barred_after_other_observations() -> None:
    state = running(110, 100)
    tell(state, pod("forged", 10, drawn_from=commands.BARRED))
    for version in (50, 60):
        tell(state, pod_seen("forged", 10, version))
        assert state.used == [110]
    tell(state, pod_seen("forged", 5, 70))
    assert state.used == [105]


def test_update_of_a_barred_pod_stays_barred() -> None:
    state = running(110, 100)
    tell(state, pod("forged", 10, drawn_from=commands.BARRED))
    tell(state, pod_seen("forged", 10, 50))
    more = commands.Reserve(NAMESPACE, "pods/forged", "uid-forged", mib(20), 50, root=WEB)
    assert isinstance(tell(state, more), Denial)
    decision = tell(state, msgspec.structs.replace(more, forced=True))
    assert not isinstance(decision, Denial)
    assert [event.root for event in decision] == [commands.BARRED]


def test_barred_root_does_not_become_part_of_another_root() -> None:
    state = with_limit(100)
    forged = commands.Reserve(NAMESPACE, WEB, "r", mib(60), root=commands.BARRED)
    tell(state, forged)
    assert tell(state, commands.End(NAMESPACE, WEB, "r", 20, "moved")) == []
    assert state.used == [60]
    tell(state, commands.End(NAMESPACE, WEB, "r", 20, "deleted"))
    assert state.used == [0]


def test_another_object_at_the_name_of_a_barred_pod_may_draw() -> None:
    state = running(110, 100)
    tell(state, pod("a", 10, drawn_from=commands.BARRED))
    tell(state, pod_seen("a", 10))
    tell(state, commands.Observe(NAMESPACE, "pods/a", "uid-next", 60, mib(10), root=WEB))
    assert state.used == [100]


def test_forged_attempt_at_the_name_of_a_drawing_pod_is_charged_alone() -> None:
    state = running(100, 100)
    tell(state, pod("web-0", 50))
    tell(state, pod_seen("web-0", 50))
    forged = commands.Reserve(NAMESPACE, "pods/web-0", "uid-forged", mib(50), root=commands.BARRED)
    assert isinstance(tell(state, forged), Denial)


def test_pods_of_a_root_that_is_gone_go_on_being_charged() -> None:
    state = running(100, 100)
    tell(state, pod("a", 60))
    tell(state, commands.End(NAMESPACE, WEB, "r", 20, "deleted"))
    assert state.used == [60]
    tell(state, commands.End(NAMESPACE, "pods/a", "uid-a", 60, "deleted"))
    assert state.used == [0]


def test_a_root_that_is_seen_after_its_pods_takes_them_in() -> None:
    state = with_limit(100)
    tell(state, pod_seen("a", 60))
    assert state.used == [60]
    tell(state, root_seen("r", 60, 100))
    assert state.used == [100]


def test_scale_up_adds_the_increase_and_scale_down_frees_when_stored() -> None:
    state = running(100, 40)
    assert kinds(tell(state, root("r", 80, base=10))) == ["Reserved"]
    assert state.used == [80]
    assert isinstance(tell(state, root("r", 101, base=10)), Denial)
    tell(state, root_seen("r", 11, 80, generation=2))
    tell(state, root_seen("r", 12, 20, generation=3))
    assert state.used == [20]


def test_an_envelope_below_its_pods_frees_only_what_they_do_not_take() -> None:
    state = running(100, 100)
    tell(state, pod("a", 60))
    tell(state, root_seen("r", 12, 20, generation=2))
    assert state.used == [60]


def test_a_status_lowers_an_envelope_and_never_raises_it() -> None:
    state = running(100, 100)
    assert kinds(tell(state, root_seen("r", 11, 30, generation=1))) == ["Committed"]
    assert state.used == [30]
    tell(state, root_seen("r", 12, 100, generation=1))
    assert state.used == [30]
    tell(state, root_seen("r", 13, 100, generation=2))
    assert state.used == [100]


def test_a_pod_that_leaves_its_root_is_truth_and_no_drift() -> None:
    state = running(100, 100)
    tell(state, pod("a", 60))
    tell(state, pod_seen("a", 60))
    assert kinds(tell(state, pod_seen("a", 60, version=70, drawn_from=""))) == ["Observed moved"]
    assert state.used == [160]


def test_two_creations_of_one_root_are_charged_once() -> None:
    state = with_limit(100)
    tell(state, root("r1", 100))
    assert kinds(tell(state, root("r2", 100))) == ["Reserved"]
    assert state.used == [100]


def test_a_root_created_again_shares_with_the_pods_of_the_one_before() -> None:
    state = running(100, 100)
    tell(state, pod_seen("old", 100))
    tell(state, root("r2", 100))
    tell(state, commands.End(NAMESPACE, WEB, "r", 20, "deleted"))
    assert state.used == [100]
    assert isinstance(tell(state, pod("new", 10)), Denial)
    tell(state, commands.End(NAMESPACE, "pods/old", "uid-old", 60, "deleted"))
    assert kinds(tell(state, pod("new", 10))) == ["Reserved"]
    assert state.used == [100]


def test_envelopes_of_other_resources_do_not_help() -> None:
    state = with_limit(100)
    cards: Amounts = {"nvidia.com/gpu": 8}
    tell(state, commands.Observe(NAMESPACE, WEB, "r", 1, cards))
    tell(state, pod("a", 60))
    assert state.used == [60]


def test_forced_reservation_is_charged_beyond_the_limit_and_marked() -> None:
    state = with_limit(100)
    events = tell(state, root("r", 150, forced=True))
    assert not isinstance(events, Denial)
    assert [event.forced for event in events] == [True]
    assert state.used == [150]
    assert isinstance(tell(state, pod("a", 160)), Denial)
    tell(state, commands.Refute(NAMESPACE, WEB, "r", 0))
    assert state.used == [0]


def test_retry_under_a_new_name_draws_too_until_the_first_is_absent() -> None:
    state = running(100, 0)
    first = commands.Reserve(NAMESPACE, "pods/x", "u1", mib(100), root=WEB)
    second = commands.Reserve(NAMESPACE, "pods/y", "u2", mib(100), root=WEB)
    tell(state, first)
    assert isinstance(tell(state, second), Denial)
    tell(state, commands.Refute(NAMESPACE, "pods/x", "u1", 0))
    assert kinds(tell(state, second)) == ["Reserved"]
    assert state.used == [100]


def test_ended_pods_of_a_root_leave_no_trace() -> None:
    state = running(100, 100)
    tell(state, pod("p", 10))
    tell(state, commands.End(NAMESPACE, "pods/p", "uid-p", 70, "deleted"))
    space = state.namespaces[NAMESPACE]
    assert (space.draws, space.members) == ({}, {})
    assert tell(state, ended("nobody", 1)) == []
    assert state.accounts[QUOTA].lines == {f"limits.{MEMORY}": 0}


def test_pods_may_not_draw_from_an_unreviewed_part_of_an_envelope() -> None:
    state = running(100, 60)
    tell(state, pod("a", 60))
    assert kinds(tell(state, root_seen("r", 11, 200, generation=2))) == ["Observed unreserved"]
    assert state.used == [200]
    denial = tell(state, pod("b", 10))
    assert isinstance(denial, Denial)
    assert denial.reason is Reason.QUOTA_EXCEEDED
    assert kinds(tell(state, commands.End(NAMESPACE, "pods/a", "uid-a", 60, "deleted")))
    assert kinds(tell(state, pod("again", 60))) == ["Reserved"]


def test_pods_of_an_observed_envelope_are_admitted_while_there_is_room() -> None:
    state = running(100, 60)
    tell(state, root_seen("r", 11, 100, generation=2))
    assert kinds(tell(state, pod("a", 100))) == ["Reserved"]
    assert state.used == [100]


def test_what_was_seen_and_is_asked_for_later_may_be_drawn() -> None:
    state = running(100, 60)
    tell(state, root_seen("r", 11, 200, generation=2))
    tell(state, commands.SetLimits(QUOTA, (NAMESPACE,), {f"limits.{MEMORY}": 500}))
    tell(state, root("r", 300, base=11))
    tell(state, root_seen("r", 12, 300, generation=3))
    tell(state, commands.SetLimits(QUOTA, (NAMESPACE,), {f"limits.{MEMORY}": 100}))
    assert kinds(tell(state, pod("a", 300))) == ["Reserved"]


def test_pod_of_an_unknown_root_is_charged_without_reading_its_siblings(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    looked: list[traits.Traits] = []

    def matches(selection: traits.Selection, texts: traits.Traits) -> bool:
        looked.append(texts)
        return traits.matches(selection, texts)

    state = State()
    selects = (traits.Requirement("app", "In", ("a",)),)
    tell(state, commands.SetLimits(QUOTA, (NAMESPACE,), {KEY: 100}, selects=selects))
    for name in "abcdef":
        tell(state, pod(name, 10, traits=(f"app={name}",)))
    monkeypatch.setattr(envelope_charges, "matches", matches)
    seen = commands.Observe(NAMESPACE, "pods/a", "uid-a", 50, mib(5), root=WEB, traits=("app=a",))
    tell(state, seen)
    assert set(looked) == {("app=a",)}
    assert state.used == [5]


def test_update_may_not_grow_into_an_unreviewed_part_of_an_envelope() -> None:
    state = running(100, 60)
    tell(state, pod("a", 50))
    tell(state, pod_seen("a", 50))
    tell(state, root_seen("r", 11, 200, generation=2))
    tell(state, commands.SetLimits(QUOTA, (NAMESPACE,), {f"limits.{MEMORY}": 500}))
    assert kinds(tell(state, pod("a", 80, base=50))) == ["Reserved"]
    tell(state, commands.SetLimits(QUOTA, (NAMESPACE,), {f"limits.{MEMORY}": 100}))
    assert isinstance(tell(state, pod("a", 90, base=50)), Denial)
