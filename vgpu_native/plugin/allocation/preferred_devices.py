"""Preferred devices: the ids that `GetPreferredAllocation` asks the kubelet to take. Pure."""

from collections.abc import Sequence

from vgpu_native.plugin.advertised_devices import card_of


def prefer(
    available: Sequence[str], required: Sequence[str], size: int, cards: Sequence[str]
) -> list[str]:
    """Return the ids that the kubelet should take, so that it counts the cards in use.

    The required ids come first, then a slot of each of `cards`, then slots of cards without any.
    Returns fewer than `size` if fewer are available.
    """
    chosen = dict.fromkeys(list(dict.fromkeys(required))[:size])
    free = [slot for slot in sorted(available) if slot not in chosen]
    used = {card_of(slot) for slot in chosen}
    for wanted in (*cards, None):
        for slot in free:
            if len(chosen) >= size:
                return list(chosen)
            card = card_of(slot)
            if card not in used and wanted in (None, card):
                chosen[slot] = None
                used.add(card)
    rest = [slot for slot in dict.fromkeys(free) if slot not in chosen]
    return [*chosen, *rest[: size - len(chosen)]]
