"""Offers are sent once to each follower, in messages of bounded size."""

import msgspec
import pytest
from support.claims.kept_slices import NVIDIA

from extender.settlement.allocated_devices.offered_cards import OfferedCards
from gpuledger.server.follower import unsent_offers
from gpuledger.server.follower.card_answers import CardAnswers
from gpuledger.server.follower.follower_process import QUESTION_BYTES_MAX
from gpuledger.server.follower.unsent_offers import OfferMessage, UnsentOffers
from ledger.kube.resource_claims.device_shapes import TEXT_MAX
from ledger.runtime.settings.settings import Settings


class Receiver:
    """A follower, which has the offers that were sent to it."""

    def __init__(self) -> None:
        self.cards = CardAnswers(Settings())
        self.messages: list[OfferMessage] = []

    def ask(self, offers: UnsentOffers) -> int:
        """Take the messages before a question; return how many nodes they have."""
        self.messages = list(offers.messages(self))
        for message in self.messages:
            assert len(msgspec.json.encode(message)) < QUESTION_BYTES_MAX
            self.cards.take_offers(message)
        return sum(len(message.offers) for message in self.messages)

    def has(self, offered: OfferedCards) -> bool:
        """Return whether it has all offers of now, and no other ones."""
        own = self.cards._inventory._offered
        return {node: own.own(node) for node in own.nodes()} == {
            node: offered.own(node) for node in offered.nodes()
        }


def uuids(*numbers: int) -> dict[str, str]:
    return {f"GPU-{number:060}": NVIDIA for number in numbers}


def test_a_question_carries_only_the_nodes_that_changed() -> None:
    offered, follower = OfferedCards(), Receiver()
    for number in range(50):
        offered.set(f"n{number}", uuids(number))
    offers = UnsentOffers(offered)
    assert follower.ask(offers) == 50
    assert follower.ask(offers) == 0
    offered.set("n1", uuids(1, 2))
    offered.set("n2", {})
    offered.set("n3", uuids(3))
    assert follower.ask(offers) == 2
    assert follower.has(offered)


def test_a_restarted_follower_gets_all_offers_of_now() -> None:
    offered, first, second = OfferedCards(), Receiver(), Receiver()
    offers = UnsentOffers(offered)
    offered.set("n1", uuids(1))
    first.ask(offers)
    offered.set("n2", uuids(2))
    assert second.ask(offers) == 2
    assert second.has(offered)


def test_messages_of_many_cards_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    offered, follower = OfferedCards(), Receiver()
    offered.set("", uuids(*range(25_000)))
    for number in range(5_000):
        offered.set(f"{number:0253}", uuids(number))
    offers = UnsentOffers(offered)
    assert follower.ask(offers) == 7 + 5_000
    assert len(follower.messages) > 7
    assert follower.has(offered)
    monkeypatch.setattr(unsent_offers, "UUIDS_MAX", 2)
    offered.set("", uuids(1, 2, 3))
    follower.ask(offers)
    assert [message.offers[0].goes_on for message in follower.messages] == [True, False]
    assert follower.has(offered)


def test_messages_of_the_longest_uuids_are_bounded() -> None:
    """A driver chooses the texts of its slices, also ones that JSON escapes."""
    offered, follower = OfferedCards(), Receiver()
    offered.set("n1", {f"{number:05}".ljust(TEXT_MAX, "\1"): NVIDIA for number in range(10_000)})
    assert follower.ask(UnsentOffers(offered)) == 3
    assert follower.has(offered)


def test_too_many_noted_nodes_are_sent_as_all_offers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unsent_offers, "UNSENT_MAX", 10)
    offered, follower = OfferedCards(), Receiver()
    offers = UnsentOffers(offered)
    offered.set("n0", uuids(0))
    follower.ask(offers)
    for number in range(1, 30):
        offered.set(f"n{number}", uuids(number))
        offered.set(f"n{number - 1}", {})
        assert len(offers._unsent) <= 10
    assert follower.ask(offers) == 1
    assert follower.messages[0].anew
    assert follower.has(offered)
