"""Overcommit: scaling the amounts of cards, by node and by type.

Only cards that our agent hands out are scaled, because HAMi's device plugin announces scaled cards.
A MIG card is not scaled.
"""

from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Final

import msgspec
from msgspec import structs

from ledger.core.model.cards import MIG, WHOLE, Card
from ledger.kube.hami import annotation_keys

MEMORY: Final = annotation_keys.MEMORY_SCALING
CORES: Final = annotation_keys.CORES_SCALING

PERCENT_MAX: Final = 1_000
"""Largest percentage: a card that is overcommitted more than ten times is a mistake."""

_NODE: Final = "node:"
_TYPE: Final = "type:"
_FORM: Final = "write node:GLOB=memory:PERCENT,cores:PERCENT or type:TEXT=…"


class CardScaling(msgspec.Struct, frozen=True):
    """The percentages at which the selected cards count; 100 is their real amount.

    `node` is a pattern of node names, `type` a part of a card's model in any case of letters; empty
    ones select all.
    """

    memory: int = WHOLE
    cores: int = WHOLE
    node: str = ""
    type: str = ""

    def selects(self, node: str, card: Card) -> bool:
        """Return whether this scaling is for a card of a node."""
        if self.node and not fnmatchcase(node, self.node):
            return False
        return self.type.lower() in card.type.lower()


def read_scaling(text: str) -> CardScaling:
    """Read one item of the setting `card_scaling`. Raises ValueError with the problem."""
    selector, equals, amounts = text.rpartition("=")
    percent = dict.fromkeys(("memory", "cores"), WHOLE)
    for item in amounts.split(","):
        name, _, amount = item.partition(":")
        if name not in percent or not equals:
            raise ValueError(f"card_scaling: {text!r} is not understood; {_FORM}")
        percent[name] = _percent("card_scaling", amount)
    scaling = CardScaling(percent["memory"], percent["cores"])
    if selector.startswith(_NODE) and selector != _NODE:
        return structs.replace(scaling, node=selector.removeprefix(_NODE))
    if selector.startswith(_TYPE) and selector != _TYPE:
        return structs.replace(scaling, type=selector.removeprefix(_TYPE))
    raise ValueError(f"card_scaling: {selector!r} selects nothing; {_FORM}")


def scaled_cards(
    cards: Sequence[Card],
    node: str,
    annotations: Mapping[str, str],
    scalings: Sequence[CardScaling],
) -> tuple[tuple[Card, ...], str]:
    """Return the scaled cards of a node, and the problem of its annotations, if any.

    An annotation of the Node goes before the settings, of which the first that selects a card is
    used. An annotation that cannot be read scales nothing.
    """
    own: dict[str, int] = {}
    warning = ""
    for key, name in ((MEMORY, "memory"), (CORES, "cores")):
        try:
            own |= {name: _percent(f"annotation {key}", annotations[key])}
        except KeyError:
            continue
        except ValueError as error:
            warning = f"{error}. The node's cards are not scaled by it"
    return tuple(_scaled(card, node, own, scalings) for card in cards), warning


def _scaled(card: Card, node: str, own: Mapping[str, int], scalings: Sequence[CardScaling]) -> Card:
    if card.mode == MIG:
        return card
    setting = next((scaling for scaling in scalings if scaling.selects(node, card)), CardScaling())
    memory, cores = own.get("memory", setting.memory), own.get("cores", setting.cores)
    return structs.replace(
        card,
        memory=card.memory * memory // WHOLE,
        cores=card.cores * cores // WHOLE,
        memory_scale=memory,
        cores_scale=cores,
    )


def _percent(what: str, text: str) -> int:
    if text.isascii() and text.isdigit() and len(text) <= len(str(PERCENT_MAX)):
        percent = int(text)
        if 1 <= percent <= PERCENT_MAX:
            return percent
    raise ValueError(f"{what}: {text[:32]!r} is not a percentage from 1 to {PERCENT_MAX}")
