"""Pods that leave their root and go on running: the root has no right to another in their place."""

import pytest
from msgspec.structs import replace
from support.builders.quota_commands import MEMORY, NAMESPACE, kinds, mib, tell, with_limit

from ledger.core.evolve.line_charges import InvariantError
from ledger.core.model import commands
from ledger.core.model.denials import Denial, Reason
from ledger.core.model.state import State

WEB = "deployments.apps/web"
OTHER = "replicasets.apps/released"


def observed(key: str, amount: int, version: int, root: str = "") -> commands.Observe:
    return commands.Observe(NAMESPACE, key, f"uid-{key}", version, mib(amount), root=root)


def pod(name: str, amount: int = 50) -> commands.Reserve:
    key = f"pods/{name}"
    return commands.Reserve(NAMESPACE, key, f"uid-{key}", mib(amount), root=WEB)


def refused(state: State, command: commands.Reserve) -> Denial:
    denial = tell(state, command)
    assert isinstance(denial, Denial), denial
    return denial


def running(limit: int) -> State:
    """An admitted root of 100 with two pods of 50."""
    state = with_limit(limit)
    tell(state, commands.Reserve(NAMESPACE, WEB, f"uid-{WEB}", mib(100)))
    tell(state, observed(WEB, 100, 10))
    for name in ("a", "b"):
        tell(state, pod(name))
        tell(state, observed(f"pods/{name}", 50, 20, WEB))
    assert state.used == [100]
    return state


@pytest.mark.parametrize("root", ["", OTHER, commands.BARRED])
def test_what_replaces_a_pod_that_left_is_refused_while_there_is_no_room(root: str) -> None:
    state = running(100)
    tell(state, observed("pods/a", 50, 30, root))
    assert state.used == [150]
    assert refused(state, pod("c")).reason is Reason.QUOTA_EXCEEDED


def test_attempt_to_create_the_root_again_gives_no_right_to_a_replacement() -> None:
    state = running(100)
    again = commands.Reserve(NAMESPACE, WEB, "uid-of-another", mib(100))
    assert kinds(tell(state, again)) == ["Reserved"]
    tell(state, observed("pods/a", 50, 30))
    assert refused(state, pod("c")).reason is Reason.QUOTA_EXCEEDED


def test_what_replaces_a_pod_that_left_comes_when_that_has_ended() -> None:
    state = running(100)
    tell(state, observed("pods/a", 50, 30))
    tell(state, commands.End(NAMESPACE, "pods/a", "uid-pods/a", 40, "deleted"))
    assert kinds(tell(state, pod("c"))) == ["Reserved"]
    assert state.used == [100]


def test_what_replaces_a_pod_that_left_comes_where_there_is_room_for_both() -> None:
    state = running(150)
    tell(state, observed("pods/a", 50, 30))
    assert kinds(tell(state, pod("c"))) == ["Reserved"]
    assert state.used == [150]


def test_replacement_of_an_ended_pod_is_admitted_below_a_lowered_limit() -> None:
    state = running(100)
    tell(state, commands.SetLimits(*_limits(state, 60)))
    tell(state, commands.End(NAMESPACE, "pods/a", "uid-pods/a", 40, "finished"))
    assert kinds(tell(state, pod("c"))) == ["Reserved"]


@pytest.mark.parametrize("is_seen", [False, True])
def test_an_update_that_adds_nothing_gives_no_right_to_what_was_only_seen(is_seen: bool) -> None:
    state = running(100)
    tell(state, observed("pods/a", 50, 30))
    labelled = commands.Reserve(
        NAMESPACE, WEB, f"uid-{WEB}", mib(100), base=10, traits=("team=red",)
    )
    tell(state, labelled)
    if is_seen:
        tell(state, replace(observed(WEB, 100, 11), traits=("team=red",)))
    assert refused(state, pod("c")).reason is Reason.QUOTA_EXCEEDED


def test_an_update_that_there_is_room_for_gives_the_right_to_all_of_it() -> None:
    state = running(200)
    tell(state, observed("pods/a", 50, 30))
    tell(state, commands.Reserve(NAMESPACE, WEB, f"uid-{WEB}", mib(150), base=10))
    tell(state, observed(WEB, 150, 40))
    tell(state, commands.SetLimits(*_limits(state, 60)))
    for name in ("c", "d"):
        assert kinds(tell(state, pod(name))) == ["Reserved"]


def test_a_smaller_envelope_that_was_all_asked_for_is_a_right_again() -> None:
    state = running(100)
    tell(state, observed("pods/a", 50, 30))
    tell(state, observed(WEB, 50, 40))
    stored = state.namespaces[NAMESPACE].entries[WEB].committed
    assert stored is not None
    assert stored.admitted is None


def _limits(state: State, limit: int) -> tuple[str, tuple[str, ...], dict[str, int]]:
    (account,) = state.accounts
    return account, state.accounts[account].covers, {f"limits.{MEMORY}": limit}


def test_a_root_that_would_draw_from_another_is_a_contradiction() -> None:
    state = running(100)
    command = commands.Reserve(NAMESPACE, OTHER, "uid-other", mib(50), root=WEB)
    with pytest.raises(InvariantError, match="draws from deployments"):
        tell(state, replace(command, forced=True))
