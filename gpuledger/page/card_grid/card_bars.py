"""Card bars: the promised memory, cores and slots of a card, each as a bar of `WIDTH` units."""

from typing import Final

import msgspec

from gpuledger.page.quantity_texts import part_text
from projections.queries.card_usage import CardUsage

WIDTH: Final = 100
_MEMORY: Final = "nvidia.com/gpumem"


class CardBar(msgspec.Struct, frozen=True):
    """A bar: its name, the amounts as text, and the width of the promised part.

    `is_over`: more is promised than the limit, for example since the limit was lowered.
    """

    name: str
    text: str
    width: int
    is_over: bool


def card_bars(card: CardUsage) -> tuple[CardBar, CardBar, CardBar]:
    """Return the bars of memory, cores and slots."""
    memory = part_text(card.used_memory, card.memory, _MEMORY)
    return (
        _bar("Memory", memory, card.used_memory, card.memory),
        _bar("Cores", f"{card.used_cores} of {card.cores} %", card.used_cores, card.cores),
        _bar("Slots", f"{card.used_slots} of {card.slots}", card.used_slots, card.slots),
    )


def _bar(name: str, text: str, used: int, limit: int) -> CardBar:
    width = min(WIDTH, WIDTH * max(0, used) // max(1, limit))
    return CardBar(name, text, max(1, width) if used > 0 else 0, used > limit)
