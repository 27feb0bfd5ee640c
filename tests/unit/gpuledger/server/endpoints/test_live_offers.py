"""Offers of now: at which positions they hold, and for which cluster."""

import json

from support.claims.kept_slices import NVIDIA

from extender.settlement.allocated_devices.offered_cards import OfferedCards
from gpuledger.server.endpoints.live_offers import LiveOffers


class Slices:
    """Offered cards beside a log, whose position a test changes."""

    def __init__(self) -> None:
        self.offered, self.is_listed, self.position = OfferedCards(), False, 5
        self.offers = LiveOffers(
            "c1",
            self.offered,
            is_listed=lambda: self.is_listed,
            position=lambda: self.position,
        )

    def hold_at(self, *positions: int) -> list[int]:
        """Return the positions at which the offers hold."""
        return [at for at in positions if self.offers.hold_at(at, is_last=at == self.position)]


def test_offers_hold_nowhere_before_the_list() -> None:
    slices = Slices()
    slices.offered.set("n1", {"GPU-0": NVIDIA})
    assert slices.hold_at(4, 5) == []


def test_offers_hold_since_the_last_change_of_a_card() -> None:
    slices = Slices()
    slices.offered.set("n1", {"GPU-0": NVIDIA})
    slices.is_listed, slices.position = True, 9
    assert slices.hold_at(4, 5, 9) == [5, 9]
    slices.offered.set("n1", {"GPU-0": NVIDIA})
    assert slices.hold_at(4, 5, 9) == [5, 9]
    slices.offered.set("n2", {"GPU-1": NVIDIA})
    assert slices.hold_at(4, 5, 8, 9) == [9]


def test_an_empty_list_holds_since_it_is_asked_for() -> None:
    slices = Slices()
    slices.is_listed = True
    assert slices.hold_at(4, 5) == [5]
    slices.position = 7
    assert slices.hold_at(4, 5, 6, 7) == [5, 6, 7]


def test_a_projection_behind_the_log_has_the_offers_of_now_at_its_end() -> None:
    slices = Slices()
    slices.is_listed = True
    slices.offered.set("n1", {"GPU-0": NVIDIA})
    assert slices.offers.hold_at(3, is_last=True)
    assert not slices.offers.hold_at(3, is_last=False)


def test_drivers_are_those_of_the_own_cluster() -> None:
    slices = Slices()
    slices.offered.set("n1", {"GPU-0": NVIDIA})
    slices.offered.set("", {"GPU-9": "any"})
    assert slices.offers.drivers("c1", "n1") == {"GPU-0": NVIDIA, "GPU-9": "any"}
    assert slices.offers.drivers("c1", "n2") == {"GPU-9": "any"}
    assert slices.offers.drivers("c2", "n1") is None


def test_names_are_those_of_all_cards_of_now() -> None:
    slices = Slices()
    slices.offered.set("n1", {"GPU-0": NVIDIA, "GPU-1": NVIDIA})
    assert json.loads(slices.offers.names()) == ["c1/n1/GPU-0", "c1/n1/GPU-1"]
    slices.offered.set("n1", {})
    slices.offered.set("", {"GPU-9": "any"})
    assert json.loads(slices.offers.names()) == ["c1//GPU-9"]
