"""Attempts: what is charged, what is refused, and what costs nothing."""

from support.builders.quota_commands import (
    KEY,
    MEMORY,
    NAMESPACE,
    QUOTA,
    absent,
    create,
    ended,
    kinds,
    mib,
    seen,
    tell,
    update,
    with_limit,
)

from ledger.core.model import accounts, commands, denials
from ledger.core.model.denials import Denial, Reason, Shortage
from ledger.core.model.state import State


def refused(decision: object) -> Denial:
    assert isinstance(decision, Denial), decision
    return decision


def test_a_creation_is_held_and_charged() -> None:
    state = with_limit(100)
    assert kinds(tell(state, create("u1", 40))) == ["Reserved"]
    assert state.used == [40]


def test_the_same_creation_again_changes_nothing() -> None:
    state = with_limit(100)
    tell(state, create("u1", 40))
    assert tell(state, create("u1", 40)) == []
    assert state.used == [40]


def test_same_creation_with_another_body_is_refused_by_its_field() -> None:
    state = with_limit(100)
    tell(state, create("u1", 40))
    denial = refused(tell(state, create("u1", 50)))
    assert denial.reason is Reason.ATTEMPT_DIFFERS
    assert (denial.field, denial.value) == (MEMORY, "50")
    assert state.used == [40]


def test_two_creations_of_one_name_are_charged_once_and_at_the_largest() -> None:
    state = with_limit(100)
    tell(state, create("u1", 40))
    tell(state, create("u2", 60))
    assert state.used == [60]


def test_pods_with_different_names_add_up() -> None:
    state = with_limit(100)
    tell(state, create("u1", 40, "a"))
    tell(state, create("u2", 60, "b"))
    assert state.used == [100]


def test_the_last_free_unit_is_given_and_not_one_more() -> None:
    state = with_limit(100)
    tell(state, create("u1", 99, "a"))
    assert refused(tell(state, create("u2", 2, "b"))).reason is Reason.QUOTA_EXCEEDED
    assert kinds(tell(state, create("u3", 1, "c"))) == ["Reserved"]


def test_a_retry_under_a_new_name_needs_its_own_room() -> None:
    state = with_limit(100)
    tell(state, create("u1", 100, "web-abc"))
    assert refused(tell(state, create("u2", 100, "web-xyz"))).transient


def test_a_first_try_at_a_taken_name_adds_nothing_to_what_is_stored_there() -> None:
    state = with_limit(200)
    tell(state, create("u1", 100, "web-abc"))
    tell(state, seen("u1", 5, 100, "web-abc"))
    assert kinds(tell(state, create("u2", 100, "web-abc"))) == ["Reserved"]
    assert kinds(tell(state, create("u3", 100, "web-xyz"))) == ["Reserved"]
    assert state.used == [200]


def test_retries_of_one_user_count_as_unsettled_each() -> None:
    state = with_limit(1_000)
    for number in range(2):
        bounded = create(f"u{number}", 1, f"web-{number}", owner="eve", owner_holds_max=2)
        assert kinds(tell(state, bounded)) == ["Reserved"]
    third = create("u9", 1, "web-9", owner="eve", owner_holds_max=2)
    assert refused(tell(state, third)).reason is Reason.TOO_MANY_UNSETTLED


def test_an_update_is_asked_only_for_its_increase() -> None:
    state = with_limit(100)
    tell(state, create("u1", 60))
    tell(state, seen("u1", 5, 60))
    assert kinds(tell(state, update("u1", 5, 100))) == ["Reserved"]
    assert state.used == [100]


def test_several_bodies_at_one_base_are_held_at_their_largest() -> None:
    state = with_limit(100)
    tell(state, create("u1", 10))
    tell(state, seen("u1", 5, 10))
    tell(state, update("u1", 5, 50))
    assert kinds(tell(state, update("u1", 5, 80))) == ["Raised"]
    assert kinds(tell(state, update("u1", 5, 30))) == ["Raised"]
    assert isinstance(tell(state, update("u1", 5, 101)), Denial)
    assert state.used == [80]


def test_an_update_that_adds_nothing_opens_no_hold() -> None:
    state = with_limit(100)
    tell(state, create("u1", 60))
    tell(state, seen("u1", 5, 60))
    assert tell(state, update("u1", 5, 60)) == []
    assert tell(state, update("u1", 5, 20)) == []


def test_an_update_on_a_superseded_base_opens_no_hold() -> None:
    state = with_limit(100)
    tell(state, create("u1", 60))
    tell(state, seen("u1", 9, 60))
    assert tell(state, update("u1", 5, 100)) == []


def test_a_pod_that_asks_for_nothing_managed_leaves_no_trace() -> None:
    state = with_limit(0)
    assert tell(state, commands.Reserve(NAMESPACE, "pods/p", "u1", {})) == []


def test_an_explicit_zero_blocks() -> None:
    denial = refused(tell(with_limit(0), create("u1", 1)))
    assert denial.reason is Reason.EXCEEDS_LIMIT
    assert not denial.transient


def test_a_namespace_without_a_quota_is_counted_and_not_limited() -> None:
    state = State()
    assert kinds(tell(state, create("u1", 10**6))) == ["Reserved"]
    tell(state, commands.SetLimits(QUOTA, (NAMESPACE,), {KEY: 10}))
    assert state.used == [10**6]


def test_all_accounts_have_to_have_room_or_none_is_charged() -> None:
    state = with_limit(100)
    tell(state, commands.SetLimits(accounts.universe("all"), (NAMESPACE, "c2/x"), {KEY: 50}))
    denial = refused(tell(state, create("u1", 60)))
    assert denial.shortages[0].account == "universe/all"
    assert state.used == [0, 0]
    tell(state, create("u2", 50))
    assert state.used == [50, 50]


def test_every_account_that_is_short_is_reported() -> None:
    state = with_limit(10)
    tell(state, commands.SetLimits(accounts.universe("all"), (NAMESPACE,), {KEY: 5}))
    denial = refused(tell(state, create("u1", 60)))
    assert [shortage.account for shortage in denial.shortages] == [QUOTA, "universe/all"]


def test_unsettled_creations_of_one_owner_are_bounded() -> None:
    state = with_limit(1_000)
    for number in range(3):
        tell(state, create(f"u{number}", 1, f"p{number}", owner="rs", owner_holds_max=3))
    denial = refused(tell(state, create("u9", 1, "p9", owner="rs", owner_holds_max=3)))
    assert denial.reason is Reason.TOO_MANY_UNSETTLED
    assert denial.transient
    assert kinds(tell(state, create("v", 1, "q", owner="other", owner_holds_max=3))) == ["Reserved"]
    tell(state, absent("u0", name="p0"))
    assert kinds(tell(state, create("u9", 1, "p9", owner="rs", owner_holds_max=3))) == ["Reserved"]


def test_an_unknown_amount_is_refused_only_where_it_is_limited() -> None:
    whole_card = commands.Reserve(NAMESPACE, "pods/p", "u1", {"nvidia.com/gpu": 1}, unknown=MEMORY)
    denial = refused(tell(with_limit(100), whole_card))
    assert denial.reason is Reason.CARD_MEMORY_UNKNOWN
    assert 'quota "main"' in denial.message
    assert kinds(tell(State(), whole_card)) == ["Reserved"]
    other = State()
    tell(other, commands.SetLimits(QUOTA, (NAMESPACE,), {"requests.nvidia.com/gpu": 5}))
    assert kinds(tell(other, whole_card)) == ["Reserved"]


def test_a_late_review_of_what_has_come_and_gone_holds_nothing() -> None:
    state = with_limit(100)
    tell(state, create("u1", 60))
    tell(state, ended("u1", 7))
    assert tell(state, create("u1", 60)) == []
    assert state.used == [0]


def test_a_denial_carries_the_numbers_the_holders_and_a_remedy() -> None:
    state = with_limit(100)
    tell(state, create("u1", 70, "big"), time=5)
    tell(state, create("u2", 20, "small"))
    denial = refused(tell(state, create("u3", 25, "next")))
    said = (
        'namespace team has too little GPU memory left: Pod next would need 25 MiB, quota "main"'
        " allows 100, 90 are used"
    )
    assert denial.shortages == (
        Shortage(QUOTA, KEY, 25, 90, 100, 10, 15, 25, 0, "QuotaExceeded", said),
    )
    assert [(holder.key, holder.amount) for holder in denial.holders] == [
        ("pods/big", 70),
        ("pods/small", 20),
    ]
    assert denials.sentence(denial) == (
        f"{said}. Try again when 15 MiB are released: at most 10 MiB now."
        " Used by: pods/big 70, pods/small 20. [QuotaExceeded]"
    )


def test_denial_beyond_the_limit_states_that_it_never_fits() -> None:
    denial = refused(tell(with_limit(100), create("u1", 101)))
    assert denial.reason is Reason.EXCEEDS_LIMIT
    assert "It can never fit: at most 100 MiB." in denials.sentence(denial)


def test_lowered_limit_evicts_no_pod_and_blocks_new_ones() -> None:
    state = with_limit(100)
    tell(state, create("u1", 80, "a"))
    tell(state, commands.SetLimits(QUOTA, (NAMESPACE,), {KEY: 50}))
    assert state.used == [80]
    assert isinstance(tell(state, create("u2", 1, "b")), Denial)
    assert mib(80) == state.namespaces[NAMESPACE].entries["pods/a"].charge


def test_unknown_amount_is_refused_where_only_the_card_type_is_limited() -> None:
    state = State()
    typed = "v100.nvidia.com/gpumem"
    tell(state, commands.SetLimits(QUOTA, (NAMESPACE,), {f"limits.{typed}": 100}))
    demand = {"nvidia.com/gpu": 1, "v100.nvidia.com/gpu": 1}
    asked = commands.Reserve(NAMESPACE, "pods/p", "u", demand, unknown=MEMORY)
    assert refused(tell(state, asked)).reason is Reason.CARD_MEMORY_UNKNOWN
    other = commands.Reserve(NAMESPACE, "pods/p", "u", {"nvidia.com/gpu": 1}, unknown=MEMORY)
    assert kinds(tell(state, other)) == ["Reserved"]
