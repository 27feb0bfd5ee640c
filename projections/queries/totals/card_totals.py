"""Card totals: the numbers of free, shared and whole cards, and of room that no pod can get."""

import asyncio
from collections.abc import Iterable
from typing import Final

import msgspec

from projections.queries.card_usage import CardUsage, cards
from projections.store.readers import ProjectionView
from projections.tables.card_table import ANNOUNCED

CARDS_MAX: Final = 5_000
"""Most cards that are counted, by name."""

_CARDS_AT_ONCE: Final = 500


class CardTotals(msgspec.Struct, frozen=True, kw_only=True):
    """Numbers of cards, and free memory in MiB.

    Each card is one of these: `free`, in service and without a container; `whole`, without room for
    a further container, because one container has all its memory or cores; `shared`, by
    containers; `out`, unhealthy, cordoned or lost. Of the shared cards, `fragmented` have memory
    left that no container can get, because the cores or the places for containers are used up.
    `memory_free` is that of free and shared cards, `largest` the most on one card, and `stranded`
    that of fragmented cards. `is_complete` is false with more than `CARDS_MAX` cards.
    """

    cards: int
    free: int
    shared: int
    whole: int
    out: int
    fragmented: int
    memory_free: int
    largest: int
    stranded: int
    is_complete: bool


async def card_totals(view: ProjectionView, position: int, *, cluster: str = "") -> CardTotals:
    """Count the cards of a cluster, "" for all clusters, as of a position."""
    counted: list[CardUsage] = []
    after = ""
    while len(counted) < CARDS_MAX:
        rows, after = await cards(
            view, position, limit=_CARDS_AT_ONCE, cluster=cluster, after=after
        )
        counted += rows
        if not after:
            break
        await asyncio.sleep(0)
    return totals_of(counted, is_complete=not after)


def totals_of(counted: Iterable[CardUsage], *, is_complete: bool) -> CardTotals:
    """Return the totals of cards."""
    of_kind = dict.fromkeys(("free", "shared", "whole", "out"), 0)
    fragmented = memory_free = largest = stranded = 0
    for card in counted:
        kind = _kind(card)
        of_kind[kind] += 1
        room = max(0, card.free_memory)
        if kind == "shared" and room and (card.free_slots <= 0 or card.free_cores <= 0):
            fragmented += 1
            stranded += room
        elif kind in ("free", "shared"):
            memory_free += room
            largest = max(largest, room)
    return CardTotals(
        cards=sum(of_kind.values()),
        **of_kind,
        fragmented=fragmented,
        memory_free=memory_free,
        largest=largest,
        stranded=stranded,
        is_complete=is_complete,
    )


def _kind(card: CardUsage) -> str:
    if card.state != ANNOUNCED or not card.health or card.cordoned:
        return "out"
    if card.used_slots <= 0:
        return "free"
    has_all = card.free_memory <= 0 or (0 < card.cores <= card.used_cores)
    return "whole" if card.used_slots == 1 and has_all else "shared"
