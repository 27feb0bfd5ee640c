"""The devices that the kubelet should take are on the cards of the likely container."""

import time
from collections import Counter

from hypothesis import given
from hypothesis import strategies as st
from support.harness.device_plugin import CARDS

from vgpu_native.plugin.advertised_devices import card_of
from vgpu_native.plugin.allocation.preferred_devices import prefer

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
    preferred = prefer(available, required, size, cards)
    assert len(preferred) == len(set(preferred)) == min(size, len({*available, *required}))
    assert set(preferred[: len(required)]) == set(required[:size])
    assert set(preferred) <= {*available, *required}
    if not required:
        had = {card_of(slot) for slot in preferred}
        wanted = [card for card in cards if any(card_of(slot) == card for slot in available)]
        assert set(wanted[:size]) <= had
        # Several slots of one card are taken only when there is no other card.
        if max(Counter(card_of(slot) for slot in preferred).values(), default=0) > 1:
            assert had == {card_of(slot) for slot in available}


def test_a_preference_is_fast_when_there_are_many_devices() -> None:
    """The call blocks the event loop; its time was once quadratic in the number of devices."""
    many = [f"GPU-{number}-0" for number in range(20_000)]
    began = time.process_time()
    assert prefer([*many, *many], (), len(many), ()) == sorted(many)
    assert time.process_time() - began < 10
