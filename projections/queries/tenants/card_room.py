"""Card room: the free amounts of cards by type, without the names of nodes, cards and pods."""

from collections import Counter
from typing import Final

import msgspec

from ledger.core.model.cards import MIG
from projections.queries.card_usage import CardOffers
from projections.store.readers import ProjectionView
from projections.tables.card_table import ANNOUNCED

GROUPS_MAX: Final = 2_000
"""Most groups of cards with equal type and amounts."""


class FreeShare(msgspec.Struct, frozen=True):
    """The free part of a card: MiB, percent of its cores, containers; `whole`: nothing is used."""

    memory: int
    cores: int
    slots: int
    whole: bool


class CardRoom(msgspec.Struct, frozen=True):
    """The cards of one type and vendor.

    `shares` counts the healthy cards by their free part. `unusable` are those that get no further
    pod, because they are unhealthy, cordoned, lost or in ResourceSlices, and `cut` those that are
    cut into instances; neither is in `shares`.
    """

    vendor: str
    type: str
    cards: int
    unusable: int
    cut: int
    shares: dict[FreeShare, int]


async def card_room(
    view: ProjectionView, position: int, cluster: str, offers: CardOffers | None = None
) -> list[CardRoom]:
    """Return the cards of a cluster as of a position by type, those of all clusters when empty.

    `offers` are the cards in ResourceSlices at the position, None where they are not known.
    """
    values = {
        "position": position,
        "cluster": cluster,
        "limit": GROUPS_MAX,
        "offered": "[]" if offers is None else offers.names(),
    }
    rooms: dict[tuple[str, str], CardRoom] = {}
    async with view.connection.execute(_GROUPS, values) as rows:
        async for vendor, type_, mode, usable, *limits, balances, count in rows:
            room = rooms.get((type_, vendor), CardRoom(vendor, type_, 0, 0, 0, {}))
            rooms[type_, vendor] = _with(room, mode, usable, _free(limits, balances), count)
    return [rooms[name] for name in sorted(rooms)]


def _with(room: CardRoom, mode: str, usable: int, free: FreeShare, count: int) -> CardRoom:
    """Return the room with one more group of cards."""
    shares, unusable, cut = Counter(room.shares), room.unusable, room.cut
    if not usable:
        unusable += count
    elif mode == MIG:
        cut += count
    else:
        shares[free] += count
    return CardRoom(room.vendor, room.type, room.cards + count, unusable, cut, dict(shares))


def _free(limits: list[int], balances: bytes) -> FreeShare:
    # Both are in the order of the lines of cards: memory, cores, slots.
    used = _bodies.decode(balances)[::2]
    memory, cores, slots = (limit - part for limit, part in zip(limits, used, strict=True))
    return FreeShare(memory, cores, slots, not any(used))


_bodies: Final = msgspec.msgpack.Decoder(list[int])

_GROUPS: Final = f"""
    WITH offered AS MATERIALIZED (SELECT value FROM json_each(:offered))
    SELECT vendor, type, mode, usable, memory, cores, slots, balances, count(*) FROM (
        SELECT
            body ->> 2 AS type, body ->> 3 AS memory, body ->> 4 AS cores, body ->> 5 AS slots,
            body ->> 6 AS vendor, body ->> 8 AS mode,
            state = '{ANNOUNCED}' AND body ->> 9 AND NOT body ->> 10
                AND cluster || '/' || node || '/' || (body ->> 0) NOT IN offered
                AND cluster || '//' || (body ->> 0) NOT IN offered AS usable,
            (
                SELECT balances.body FROM balances
                WHERE balances.account = cards.account AND position <= :position
                ORDER BY position DESC LIMIT 1
            ) AS balances
        FROM cards WHERE opened <= :position AND (closed IS NULL OR closed > :position)
        AND (:cluster = '' OR cluster = :cluster)
    )
    GROUP BY 1, 2, 3, 4, 5, 6, 7, 8 ORDER BY count(*) DESC LIMIT :limit
"""
"""The fields of `ledger.core.model.cards.Card` are by their places in its JSON."""
