"""Fitting requests: the requests that a namespace could make now on each type of card.

Both sides count: the free amounts of the cards, and the free amounts of the quotas that cover the
namespace. The page names no card and no node.
"""

from collections.abc import Mapping
from typing import Final

import msgspec

from ledger.core.model.accounts import resource_of
from ledger.kube.vendors.vendors import BUILT_IN, WHOLE, Vendor
from projections.queries.quota_usage import Usage
from projections.queries.tenants.card_room import CardRoom, FreeShare

_VENDORS: Final = {
    vendor.name: vendor
    for vendor in BUILT_IN
    if vendor.count and vendor.memory and vendor.memory_factor == 1 and vendor.whole_cores == WHOLE
}
"""The vendors whose resources count cards, MiB and percent of a card."""


class FittingRequest(msgspec.Struct, frozen=True):
    """The pods that fit on cards of one type: `shared` pods of `memory` MiB each, or `whole` cards.

    `memory` is that of the largest single share of a card that cards and quotas have room for, and
    `cores` the percent of a card that it may have. `cards` are those of the type, `usable` those
    that get further pods. `limits` are the quotas that leave less than the cards do, as texts.
    `problem` is the reason why nothing was computed, empty otherwise.
    """

    type: str
    cards: int
    usable: int
    memory: int
    cores: int
    shared: int
    whole: int
    limits: list[str]
    problem: str = ""


class QuotaRoom(msgspec.Struct, frozen=True):
    """The free amount of the tightest quota of a resource, None without a quota."""

    free: int | None = None
    quota: str = ""

    def most(self, wanted: int, each: int = 1) -> int:
        """Return how many of `wanted` things of `each` have room."""
        if self.free is None or not each:
            return wanted
        return min(wanted, max(0, self.free) // each)

    def limiting(self, wanted: int) -> str:
        """Return the quota if it has less room than is wanted, "" otherwise."""
        return self.quota if self.free is not None and self.free < wanted else ""


def fitting_requests(rooms: list[CardRoom], lines: list[Usage]) -> list[FittingRequest]:
    """Return the requests that fit on each type of card under the lines that count every pod."""
    return [_fitting(room, lines) for room in rooms]


def _fitting(room: CardRoom, lines: list[Usage]) -> FittingRequest:
    vendor = _VENDORS.get(room.vendor)
    usable = sum(room.shares.values())
    if vendor is None:
        problem = f"Amounts of vendor {room.vendor} are not computed here."
        return FittingRequest(room.type, room.cards, usable, 0, 0, 0, 0, [], problem)
    cards, memory, cores = _rooms(vendor, room.type, lines)
    largest = _largest(room)
    size = memory.most(largest.memory)
    by_cards = sum(
        count * min(share.memory // size, share.slots)
        for share, count in room.shares.items()
        if size and share.cores > 0
    )
    shared = cards.most(memory.most(by_cards, size))
    unused = {share: count for share, count in room.shares.items() if share.whole}
    empty = sum(unused.values())
    each = max((share.memory for share in unused), default=0)
    whole = cards.most(memory.most(cores.most(empty, WHOLE), each))
    limits = {
        cards.limiting(max(by_cards, empty)),
        memory.limiting(max(largest.memory, by_cards * size, empty * each)),
        cores.limiting(max(largest.cores, empty * WHOLE)),
    }
    return FittingRequest(
        room.type,
        room.cards,
        usable,
        size if shared else 0,
        cores.most(largest.cores) if shared else 0,
        shared,
        whole,
        sorted(limits - {""}),
    )


def _largest(room: CardRoom) -> FreeShare:
    """Return the free share with the most memory that another container can have."""
    shares = [share for share in room.shares if min(share.slots, share.cores, share.memory) > 0]
    return max(shares, key=lambda share: (share.memory, share.cores), default=_NONE)


_NONE: Final = FreeShare(0, 0, 0, whole=False)


def _rooms(
    vendor: Vendor, card_type: str, lines: list[Usage]
) -> tuple[QuotaRoom, QuotaRoom, QuotaRoom]:
    names = (vendor.count, vendor.memory, vendor.cores)
    tightest: dict[str, QuotaRoom] = {}
    for line in lines:
        resource = resource_of(line.resource)
        for name in names:
            if resource == name or _is_of_type(resource, name, card_type):
                known = tightest.get(name, QuotaRoom())
                if known.free is None or line.free < known.free:
                    tightest[name] = QuotaRoom(line.free, f"{line.quota} ({line.resource})")
    count, memory, cores = (_room(tightest, name) for name in names)
    return count, memory, cores


def _room(tightest: Mapping[str, QuotaRoom], name: str) -> QuotaRoom:
    return tightest.get(name, QuotaRoom())


def _is_of_type(resource: str, name: str, card_type: str) -> bool:
    """Return whether a resource is that of one type of card, as `v100.nvidia.com/gpumem` is."""
    kind, dot, rest = resource.partition(f".{name}")
    return bool(dot) and not rest and kind.lower() in card_type.lower()
