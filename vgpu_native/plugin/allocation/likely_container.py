"""Choosing: for which container the kubelet is asking, as far as can be told before it says. Pure.

The kubelet allocates the containers of a pod in order, and pods one after the other. So of each pod
only the first container that has nothing yet can be meant, and only with as many cards.
"""

from collections.abc import Collection, Iterable, Sequence

import msgspec

from vgpu_native.plugin.advertised_devices import card_of
from vgpu_native.plugin.placement_source import PlacedContainer


class LikelyContainer(msgspec.Struct, frozen=True):
    """A container that may be meant; with `alike` it makes no difference which of them it is.

    With `same_cards` only the amounts differ, which can be put right until the start.
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
    """Return who may be asked for with so many devices, the likeliest first.

    `given` are the keys of containers that have their answers, `latest` is the uid of the pod that
    was answered last: the kubelet finishes one pod before it begins another.
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
    """Return the likeliest of candidates, None when there is none."""
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
    """Return which ids the kubelet had best take, so that it counts the cards that are used.

    The required ones come first, then a slot of each of `cards`, then slots of cards that have
    none yet. Fewer than `size` where there are fewer.
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
