"""Likely container: chooses the container of an `Allocate` call, which does not name it. Pure.

The kubelet allocates the containers of a pod in order, and pods one after the other. So the call
can only be for the first container of a pod without cards, and only if the number of cards matches.
"""

from collections.abc import Collection, Iterable, Sequence

import msgspec

from vgpu_native.plugin.advertised_devices import card_of
from vgpu_native.plugin.placement_source import PlacedContainer


class LikelyContainer(msgspec.Struct, frozen=True):
    """The likely container; with `alike`, all candidates have the same shares.

    With `same_cards`, only the amounts differ; the plugin can correct these until the start.
    """

    container: PlacedContainer
    same_cards: bool
    alike: bool


def candidates(
    containers: Iterable[PlacedContainer],
    given: Collection[tuple[str, str]],
    count: int,
    latest: str = "",
) -> list[PlacedContainer]:
    """Return the candidates for a call with `count` devices, likeliest first.

    `given` are the keys of containers that have their responses. `latest` is the uid of the pod of
    the last response: the kubelet finishes one pod before it begins another.
    """
    firsts: dict[str, PlacedContainer] = {}
    for one in containers:
        if one.shares and one.key not in given:
            first = firsts.get(one.uid)
            if first is None or one.order < first.order:
                firsts[one.uid] = one
    fitting = (one for one in firsts.values() if len(one.shares) == count)
    return sorted(
        fitting, key=lambda one: (one.uid != latest, one.time, one.namespace, one.pod, one.uid)
    )


def choose(found: Sequence[PlacedContainer]) -> LikelyContainer | None:
    """Return the likeliest of the candidates; None if there is none."""
    if not found:
        return None
    first = found[0]
    return LikelyContainer(
        first,
        all(_cards(one) == _cards(first) for one in found),
        all(one.shares == first.shares for one in found),
    )


def prefer(
    available: Sequence[str], required: Sequence[str], size: int, cards: Sequence[str]
) -> list[str]:
    """Return the ids that the kubelet should take, so that it counts the cards in use.

    The required ids come first, then a slot of each of `cards`, then slots of cards without any.
    Returns fewer than `size` if fewer are available.
    """
    chosen = dict.fromkeys(list(dict.fromkeys(required))[:size])
    free = [one for one in sorted(available) if one not in chosen]
    used = {card_of(one) for one in chosen}
    for wanted in (*cards, None):
        for one in free:
            if len(chosen) >= size:
                return list(chosen)
            card = card_of(one)
            if card not in used and wanted in (None, card):
                chosen[one] = None
                used.add(card)
    rest = [one for one in dict.fromkeys(free) if one not in chosen]
    return [*chosen, *rest[: size - len(chosen)]]


def _cards(container: PlacedContainer) -> tuple[frozenset[str], bool]:
    return frozenset(container.cards), container.exclusive
