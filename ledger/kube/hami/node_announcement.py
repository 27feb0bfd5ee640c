"""Node announcement: the cards in the annotations of a Node.

If the list of one vendor is invalid, the whole announcement is, and the caller keeps the previous
cards. Without the cards of that list, cards in use would count as removed. Invalid link scores
alone are ignored, because they rank cards and do not list them.
"""

from collections import Counter
from collections.abc import Mapping
from typing import Final

import msgspec
from msgspec import structs

from ledger.core.decide.cards.card_checks import SHARES_MAX
from ledger.core.model.cards import HAMI, OWN, Card
from ledger.kube.api.quoting import shown
from ledger.kube.hami import annotation_keys, link_scores, node_device_annotation
from ledger.kube.hami.link_scores import BadScores, PairScores
from ledger.kube.hami.node_device_annotation import BadCards

_KEEPERS: Final = (HAMI, OWN)
_REMEDY: Final = "The previous cards of the node are kept: restart its device plugin"


class NodeAnnouncement(msgspec.Struct, frozen=True):
    """The cards that a node announces.

    `cards` are sorted by vendor, index and uuid. `vendors` are those whose annotation exists, even
    with an empty list. `scores` are the link scores of pairs. `problem` names an invalid annotation
    and the remedy; `cards` is then empty, and the caller keeps the previous cards. `warning` is
    about the link scores.
    """

    cards: tuple[Card, ...] = ()
    keeper: str = HAMI
    vendors: tuple[str, ...] = ()
    scores: PairScores = {}
    problem: str = ""
    warning: str = ""


def read_announcement(annotations: Mapping[str, str], keeper: str = HAMI) -> NodeAnnouncement:
    """Return the announcement of a Node; `keeper` is used if the annotations name no keeper."""
    keeper = annotations.get(annotation_keys.KEEPER, keeper)
    if keeper not in _KEEPERS:
        return NodeAnnouncement(problem=_unknown_keeper(keeper))
    cards: list[Card] = []
    vendors = tuple(
        name
        for name, words in annotation_keys.VENDOR_ANNOTATIONS.items()
        if words.register in annotations
    )
    for vendor in vendors:
        register = annotation_keys.VENDOR_ANNOTATIONS[vendor].register
        try:
            cards += node_device_annotation.read(annotations[register], vendor)
        except BadCards as error:
            return NodeAnnouncement(
                keeper=keeper, vendors=vendors, problem=_unreadable(register, error)
            )
    problem = _at_odds(cards)
    if problem:
        return NodeAnnouncement(keeper=keeper, vendors=vendors, problem=problem)
    scores, warning = _scores(annotations)
    return NodeAnnouncement(_in_order(cards, annotations), keeper, vendors, scores, warning=warning)


def _in_order(cards: list[Card], annotations: Mapping[str, str]) -> tuple[Card, ...]:
    """Return the sorted cards, with cordoned cards marked."""
    closed = {uuid.strip() for uuid in annotations.get(annotation_keys.CORDON, "").split(",")}
    return tuple(
        structs.replace(card, cordoned=True) if card.uuid in closed else card
        for card in sorted(cards, key=lambda card: (card.vendor, card.index, card.uuid))
    )


def _at_odds(cards: list[Card]) -> str:
    """Return the problem of a list of valid cards, "" if there is none."""
    if len(cards) > SHARES_MAX:
        return f"{len(cards)} cards are more than {SHARES_MAX}. {_REMEDY}"
    for uuid, times in Counter(card.uuid for card in cards).most_common(1):
        if times > 1:
            return f"{times} cards have the uuid {uuid}. {_REMEDY}"
    return ""


def _scores(annotations: Mapping[str, str]) -> tuple[PairScores, str]:
    """Return the scores of pairs, and their problem."""
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
    return f"annotation {annotation}: {error}. {_REMEDY}"


def _unknown_keeper(keeper: str) -> str:
    return (
        f"annotation {annotation_keys.KEEPER}: {shown(keeper)!r} is not one of"
        f" {', '.join(_KEEPERS)}. The previous cards of the node are kept: write the component that"
        " allocates its cards, or remove the annotation"
    )
