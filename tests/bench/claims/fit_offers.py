"""Processor time that the cards in ResourceSlices add to a fit, when the script is run.

There are 5,000 nodes of 8 cards, all of them in slices. The event loop of the service encodes what
the follower does not have yet, and the follower takes it.
"""

import time
from typing import Final

import msgspec
from support.builders.decide_and_fold import apply
from support.claims.kept_slices import NVIDIA

from extender.settlement.allocated_devices.offered_cards import OfferedCards
from gpuledger.server.follower.card_answers import CardAnswers
from gpuledger.server.follower.unsent_offers import OfferMessage, UnsentOffers
from ledger.core.model.cards import OWN, Card
from ledger.core.model.commands import RegisterCards
from ledger.core.model.state import State
from ledger.runtime.settings.settings import Settings

NODES: Final = 5_000
CARDS: Final = 8


def uuids(node: int, salt: str = "a") -> list[str]:
    """Return the uuids of the cards of a node."""
    return [f"GPU-{node:08x}-{salt}aaa-bbbb-cccc-{card:012x}" for card in range(CARDS)]


def main() -> None:
    """Print the times of the first fit, of one without changes, and of one after a change."""
    state, offered = State(), OfferedCards()
    for node in range(NODES):
        cards = (Card(uuid, at, "H100", 81_920, 100, 10) for at, uuid in enumerate(uuids(node)))
        assert apply(state, RegisterCards(f"local/node-{node}", OWN, tuple(cards)))
        offered.set(f"node-{node}", dict.fromkeys(uuids(node), NVIDIA))
    answers, offers, receiver = CardAnswers(Settings()), UnsentOffers(offered), object()
    answers._loaded(state)
    for name, changed in (("first", 0), ("no change", 0), ("a node changed", 1)):
        for node in range(changed):
            offered.set(f"node-{node}", dict.fromkeys(uuids(node, "b"), NVIDIA))
        began = time.process_time()
        sent = [msgspec.json.encode(message) for message in offers.messages(receiver)]
        encoded = time.process_time()
        for message in sent:
            answers.take_offers(msgspec.json.decode(message, type=OfferMessage))
        taken = time.process_time()
        size = sum(map(len, sent))
        service, follower = 1_000 * (encoded - began), 1_000 * (taken - encoded)
        print(f"{name}: {size} bytes, service {service:.2f} ms, follower {follower:.1f} ms")


if __name__ == "__main__":
    main()
