"""Assumed placements count once, are bounded, and expire."""

from extender.inventory.unrecorded_card_use import ASSUMED_MAX, UsageOverlay
from ledger.core.model.card_bookings import Booking

ONE = {2: Booking(10, 20, 1)}


def _at(overlay: UsageOverlay, row: int, column: int) -> tuple[int, ...]:
    arrays = (overlay.memory, overlay.cores, overlay.slots, overlay.alone)
    return tuple(int(array[row, column]) for array in arrays)


def test_assumed_placement_counts_until_it_is_dropped() -> None:
    overlay = UsageOverlay()
    overlay.add("u1", 3, ONE, {2}, until=10.0)
    assert _at(overlay, 3, 2) == (10, 20, 1, 1)
    overlay.drop("u1")
    overlay.drop("u1")
    assert _at(overlay, 3, 2) == (0, 0, 0, 0)


def test_second_assumed_placement_of_a_pod_replaces_the_first() -> None:
    overlay = UsageOverlay()
    overlay.add("u1", 3, ONE, until=10.0)
    overlay.add("u1", 4, ONE, until=10.0)
    assert (_at(overlay, 3, 2), _at(overlay, 4, 2)) == ((0, 0, 0, 0), (10, 20, 1, 0))
    assert len(overlay) == 1


def test_assumed_placement_ends_at_its_deadline() -> None:
    overlay = UsageOverlay()
    overlay.add("early", 0, ONE, until=5.0)
    overlay.add("late", 1, ONE, until=9.0)
    overlay.expire(4.9)
    assert len(overlay) == 2
    overlay.expire(5.0)
    assert (_at(overlay, 0, 2), _at(overlay, 1, 2)) == ((0, 0, 0, 0), (10, 20, 1, 0))
    overlay.expire(9.0)
    assert len(overlay) == 0


def test_oldest_assumed_placement_is_forgotten_at_the_bound() -> None:
    overlay = UsageOverlay()
    for number in range(ASSUMED_MAX + 1):
        overlay.add(f"u{number}", number % 2, ONE, until=10.0)
    assert len(overlay) == ASSUMED_MAX
    assert overlay.slots.sum() == ASSUMED_MAX


def test_pod_ignores_its_own_assumed_placement_and_claim() -> None:
    overlay = UsageOverlay()
    overlay.add("u1", 3, ONE, until=10.0)
    overlay.keep("u1", 3, ONE, {2})
    overlay.add("u2", 3, ONE, until=10.0)
    with overlay.without("u1", 0.0):
        assert _at(overlay, 3, 2) == (10, 20, 1, 0)
    assert _at(overlay, 3, 2) == (30, 60, 3, 1)


def test_what_is_kept_for_a_pod_has_no_deadline() -> None:
    overlay = UsageOverlay()
    overlay.keep("u1", 3, ONE)
    overlay.expire(1e9)
    assert _at(overlay, 3, 2) == (10, 20, 1, 0)
    overlay.release("u1")
    assert _at(overlay, 3, 2) == (0, 0, 0, 0)


def test_growing_keeps_what_is_taken() -> None:
    overlay = UsageOverlay(2, 4)
    overlay.add("u1", 1, ONE, until=10.0)
    overlay.grow(5, 6)
    assert overlay.memory.shape == (5, 6)
    assert _at(overlay, 1, 2) == (10, 20, 1, 0)
    overlay.drop("u1")
    assert not overlay.memory.any()


def test_row_whose_columns_change_has_no_assumed_placements_left() -> None:
    overlay = UsageOverlay()
    overlay.add("u1", 3, ONE, until=10.0)
    overlay.keep("u2", 3, ONE)
    overlay.add("u3", 4, ONE, until=10.0)
    overlay.clear(3)
    assert not overlay.memory[3].any()
    assert len(overlay) == 1


def test_claim_stays_when_assumed_placements_are_ignored() -> None:
    overlay = UsageOverlay()
    overlay.add("u1", 3, ONE, {2}, until=5.0)
    overlay.keep("u2", 3, ONE, {2})
    with overlay.without_assumed():
        assert _at(overlay, 3, 2) == (10, 20, 1, 1)
        with overlay.without("u1", 0.0):
            assert _at(overlay, 3, 2) == (10, 20, 1, 1)
        overlay.expire(9.0)
    assert _at(overlay, 3, 2) == (20, 40, 2, 2)
    overlay.expire(9.0)
    assert _at(overlay, 3, 2) == (10, 20, 1, 1)
