"""The likely container of an Allocate call, and the devices that the kubelet should take."""

import time
from collections import Counter

from hypothesis import given
from hypothesis import strategies as st
from support.harness.device_plugin import CARDS, container, share

from vgpu_native.plugin.advertised_devices import card_of
from vgpu_native.plugin.allocation.likely_container import candidates, choose, prefer

NO_KEYS: set[tuple[str, str]] = set()


def test_only_the_first_container_without_cards_is_a_candidate() -> None:
    fetch = container("a", share(0), name="fetch")
    train = container("a", share(0), name="train", order=1)
    assert candidates([train, fetch], NO_KEYS, 1) == [fetch]
    assert candidates([train, fetch], {fetch.key}, 1) == [train]
    assert candidates([train, fetch], {fetch.key, train.key}, 1) == []


def test_a_container_with_another_count_is_not_a_candidate() -> None:
    fetch = container("a", share(0), share(1), name="fetch")
    train = container("a", share(0), name="train", order=1)
    assert candidates([fetch, train], NO_KEYS, 1) == [], "the first container has no cards yet"
    assert candidates([fetch, train], NO_KEYS, 2) == [fetch]


def test_the_pod_of_the_last_response_precedes_older_pods() -> None:
    old, new = container("old", share(0), time=1), container("new", share(1), time=2)
    assert candidates([new, old], NO_KEYS, 1) == [old, new]
    assert candidates([new, old], NO_KEYS, 1, latest="new-uid") == [new, old]


def test_the_choice_reports_whether_candidates_differ() -> None:
    alike = choose([container("a", share(0, 5)), container("b", share(0, 5))])
    assert alike is not None
    assert (alike.same_cards, alike.alike) == (True, True)
    amounts = choose([container("a", share(0, 5)), container("b", share(0, 6))])
    assert amounts is not None
    assert (amounts.same_cards, amounts.alike) == (True, False)
    cards = choose([container("a", share(0, 5)), container("b", share(1, 5))])
    assert cards is not None
    assert (cards.same_cards, cards.alike) == (False, False)
    alone = choose([container("a", share(0, exclusive=True)), container("b", share(0))])
    assert alone is not None
    assert not alone.same_cards, "one of them runs without the library"
    assert choose([]) is None


SLOTS = [f"{uuid}-{slot}" for uuid in CARDS for slot in range(3)]


@given(
    available=st.lists(st.sampled_from(SLOTS), unique=True),
    required=st.lists(st.sampled_from(SLOTS), unique=True, max_size=3),
    size=st.integers(1, 6),
    cards=st.lists(st.sampled_from(CARDS), unique=True, max_size=3),
)
def test_a_preference_has_the_required_ids_and_only_available_ones(
    available: list[str], required: list[str], size: int, cards: list[str]
) -> None:
    found = prefer(available, required, size, cards)
    assert len(found) == len(set(found)) == min(size, len({*available, *required}))
    assert set(found[: len(required)]) == set(required[:size])
    assert set(found) <= {*available, *required}
    if not required:
        had = {card_of(one) for one in found}
        wanted = [card for card in cards if any(card_of(one) == card for one in available)]
        assert set(wanted[:size]) <= had
        # Several slots of one card are taken only when there is no other card.
        if max(Counter(card_of(one) for one in found).values(), default=0) > 1:
            assert had == {card_of(one) for one in available}


def test_a_preference_is_fast_when_there_are_many_devices() -> None:
    """The call blocks the event loop; its time was once quadratic in the number of devices."""
    many = [f"GPU-{number}-0" for number in range(20_000)]
    began = time.process_time()
    assert prefer([*many, *many], (), len(many), ()) == sorted(many)
    assert time.process_time() - began < 10
