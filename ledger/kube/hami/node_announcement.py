"""Node cards: what the annotations of a Node say of its cards.

What cannot be read makes the whole reading a problem, and the caller keeps what it knew: half a
list would look as if the other cards had gone, with pods on them. Only the scores of pairs may be
wrong by themselves, since they say which cards are better, not which there are.
"""

from collections import Counter
from collections.abc import Mapping
from typing import Final

import msgspec
from msgspec import structs

from ledger.core.decide.card_checks import SHARES_MAX
from ledger.core.model.cards import HAMI, OWN, Card
from ledger.kube.api.quoting import shown
from ledger.kube.hami import annotation_keys, link_scores, node_devices
from ledger.kube.hami.link_scores import BadScores, PairScores
from ledger.kube.hami.node_devices import BadCards

_KEEPERS: Final = (HAMI, OWN)
_WHAT_TO_DO: Final = "What was known of the node's cards is kept: restart the device plugin there"


class NodeAnnouncement(msgspec.Struct, frozen=True):
    """What a node announces.

    `cards` are in order of vendor, index and uuid, whatever order the node lists them in. `vendors`
    are those whose annotation is there, be it an empty list. `scores` tell which cards are well
    linked. `problem` says what cannot be read and what to do about it; then there are no cards
    here, and what is known of the node should be kept. `warning` says what else is wrong.
    """

    cards: tuple[Card, ...] = ()
    keeper: str = HAMI
    vendors: tuple[str, ...] = ()
    scores: PairScores = {}
    problem: str = ""
    warning: str = ""


def read_announcement(annotations: Mapping[str, str], keeper: str = HAMI) -> NodeAnnouncement:
    """Return what the annotations of a Node announce; its keeper is `keeper` unless they say."""
    keeper = annotations.get(annotation_keys.KEEPER, keeper)
    if keeper not in _KEEPERS:
        return NodeAnnouncement(problem=_unknown_keeper(keeper))
    found: list[Card] = []
    vendors = tuple(
        name
        for name, words in annotation_keys.VENDOR_ANNOTATIONS.items()
        if words.register in annotations
    )
    for vendor in vendors:
        register = annotation_keys.VENDOR_ANNOTATIONS[vendor].register
        try:
            found += node_devices.read(annotations[register], vendor)
        except BadCards as error:
            return NodeAnnouncement(
                keeper=keeper, vendors=vendors, problem=_unreadable(register, error)
            )
    problem = _at_odds(found)
    if problem:
        return NodeAnnouncement(keeper=keeper, vendors=vendors, problem=problem)
    scores, warning = _scores(annotations)
    return NodeAnnouncement(_in_order(found, annotations), keeper, vendors, scores, warning=warning)


def _in_order(found: list[Card], annotations: Mapping[str, str]) -> tuple[Card, ...]:
    """Return the cards in an order of their own, those that are closed as such."""
    closed = {uuid.strip() for uuid in annotations.get(annotation_keys.CORDON, "").split(",")}
    return tuple(
        structs.replace(card, cordoned=True) if card.uuid in closed else card
        for card in sorted(found, key=lambda card: (card.vendor, card.index, card.uuid))
    )


def _at_odds(found: list[Card]) -> str:
    """Say what is wrong with cards that are right one by one; empty when nothing is."""
    if len(found) > SHARES_MAX:
        return f"{len(found)} cards are more than {SHARES_MAX}. {_WHAT_TO_DO}"
    for uuid, times in Counter(card.uuid for card in found).most_common(1):
        if times > 1:
            return f"{times} cards have the uuid {uuid}. {_WHAT_TO_DO}"
    return ""


def _scores(annotations: Mapping[str, str]) -> tuple[PairScores, str]:
    """Return the scores of pairs, and what is wrong with them."""
    text = annotations.get(annotation_keys.PAIR_SCORES)
    if not text:
        return {}, ""
    try:
        return link_scores.read(text), ""
    except BadScores as error:
        return (
            {},
            f"annotation {annotation_keys.PAIR_SCORES}: {error}. Links between cards do not count",
        )


def _unreadable(annotation: str, error: BadCards) -> str:
    return f"annotation {annotation}: {error}. {_WHAT_TO_DO}"


def _unknown_keeper(keeper: str) -> str:
    return (
        f"annotation {annotation_keys.KEEPER}: {shown(keeper)!r} is none of"
        f" {', '.join(_KEEPERS)}. What was"
        " known of the node's cards is kept: write who hands its cards out, or remove it"
    )
