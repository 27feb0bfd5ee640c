"""Card usage: the cards with their limits and used amounts, now or as of a position."""

from collections.abc import Mapping
from typing import Final, Protocol

import msgspec

from ledger.core.model import accounts
from ledger.core.model.cards import Card as Announced
from projections.queries.pods_on_cards import PodOnCard, pods_on_cards
from projections.store.readers import ProjectionView
from projections.tables.card_table import ANNOUNCED

DEVICE_PLUGIN: Final = "device-plugin"
DRA: Final = "dra"
"""The mechanisms that offer cards: announcements of nodes, and ResourceSlices."""


class CardOffers(Protocol):
    """The cards in ResourceSlices of now. The log does not record them."""

    def hold_at(self, position: int, *, is_last: bool) -> bool:
        """Return whether they are those of a position, which may be the last one."""
        ...

    def drivers(self, cluster: str, node: str) -> Mapping[str, str] | None:
        """Return the driver of each such card of a node by uuid, None if they are not known."""
        ...

    def names(self) -> str:
        """Return all as a JSON list of `CLUSTER/NODE/UUID`, without NODE for cards of any node."""
        ...


class CardUsage(msgspec.Struct, frozen=True):
    """One card of a node: `memory` in MiB, `cores` in percent of a card, `slots` in containers.

    These are limits. `used_…` are the amounts of pods, and `free_…` the differences, which are
    below zero when a limit was lowered below the used amount. `memory_scale` and `cores_scale` are
    the limits in percent of the card's own amounts. `keeper` is the device plugin that hands the
    card out. `state` is `announced`, `lost` when the node no longer announces the card, or `gone`
    when the node no longer exists. Pods keep a lost or gone card, and no further pod gets it.
    `offered_by` is the mechanism that gives the card to further pods, "" for none, and `driver` the
    driver of its ResourceSlice, "" without one; both are left out where slices are not known.
    `pods` is filled on request.
    """

    cluster: str
    node: str
    uuid: str
    index: int
    type: str
    health: bool
    memory: int
    cores: int
    slots: int
    used_memory: int
    used_cores: int
    used_slots: int
    free_memory: int
    free_cores: int
    free_slots: int
    vendor: str
    mode: str
    numa: int
    cordoned: bool
    memory_scale: int
    cores_scale: int
    keeper: str
    state: str
    offered_by: str | msgspec.UnsetType = msgspec.UNSET
    driver: str | msgspec.UnsetType = msgspec.UNSET
    pods: list[PodOnCard] | msgspec.UnsetType = msgspec.UNSET


async def cards(
    view: ProjectionView,
    position: int,
    *,
    limit: int,
    cluster: str = "",
    node: str = "",
    node_prefix: str = "",
    after: str = "",
    pods: bool = False,
) -> tuple[list[CardUsage], str]:
    """Return at most `limit` cards as of a position, by cluster, node and uuid.

    `cluster`, `node` and `node_prefix`, the begin of the names of nodes, restrict them unless they
    are empty; with `pods`, each card has its pods.
    Returns with them the account of the next page, empty at the end.
    """
    values = {
        "position": position,
        "cluster": cluster,
        "node": node,
        "node_prefix": node_prefix,
        "after": after,
        "limit": limit + 1,
    }
    async with view.connection.execute(_CARDS, values) as rows:
        fetched = list(await rows.fetchall())
    read = [_card_usage(*row) for row in fetched[:limit]]
    if pods:
        there = await pods_on_cards(
            view, position, {f"{card.cluster}/{card.node}" for card in read}
        )
        read = [
            msgspec.structs.replace(
                card, pods=there.get((f"{card.cluster}/{card.node}", card.uuid), [])
            )
            for card in read
        ]
    return read, fetched[limit - 1][0] if len(fetched) > limit else ""


def with_mechanisms(
    read: list[CardUsage], view: ProjectionView, position: int, offers: CardOffers | None
) -> list[CardUsage]:
    """Return cards as of a position with the mechanism that offers each, as far as it is known."""
    known = offers_at(view, position, offers)
    if known is None:
        return read
    nodes = dict.fromkeys((card.cluster, card.node) for card in read)
    drivers = {node: known.drivers(*node) for node in nodes}
    return [_with_mechanism(card, drivers[card.cluster, card.node]) for card in read]


def offers_at(view: ProjectionView, position: int, offers: CardOffers | None) -> CardOffers | None:
    """Return the offers if they are those of a position, None otherwise."""
    is_last = position == view.head.position
    return offers if offers is not None and offers.hold_at(position, is_last=is_last) else None


async def cards_open(view: ProjectionView, cluster: str = "") -> int:
    """Return how many cards there are now; `cluster` restricts them unless it is empty."""
    async with view.connection.execute(_OPEN, {"cluster": cluster}) as rows:
        row = await rows.fetchone()
    return int(row[0]) if row is not None else 0


def _card_usage(
    account: str, keeper: str, state: str, body: str, limits: bytes, balances: bytes
) -> CardUsage:
    cluster, node, uuid = accounts.parts(account)
    card = _announced.decode(body)
    # Both rows are in the order of LINES: line and limit, used and reserved of each.
    of_lines = zip(_balances.decode(limits)[1::2], _balances.decode(balances)[::2], strict=True)
    (memory, used_memory), (cores, used_cores), (slots, used_slots) = of_lines
    return CardUsage(
        cluster=cluster,
        node=node,
        uuid=uuid,
        index=card.index,
        type=card.type,
        health=card.healthy,
        memory=memory,
        cores=cores,
        slots=slots,
        used_memory=used_memory,
        used_cores=used_cores,
        used_slots=used_slots,
        free_memory=memory - used_memory,
        free_cores=cores - used_cores,
        free_slots=slots - used_slots,
        vendor=card.vendor,
        mode=card.mode,
        numa=card.numa,
        cordoned=card.cordoned,
        memory_scale=card.memory_scale,
        cores_scale=card.cores_scale,
        keeper=keeper,
        state=state,
    )


def _with_mechanism(card: CardUsage, drivers: Mapping[str, str] | None) -> CardUsage:
    """Return a card with its mechanism, by the drivers of the offered cards of its node."""
    if drivers is None:
        return card
    mechanism = DEVICE_PLUGIN if card.state == ANNOUNCED else ""
    driver = drivers.get(card.uuid)
    return msgspec.structs.replace(
        card, offered_by=mechanism if driver is None else DRA, driver=driver or ""
    )


_announced: Final = msgspec.json.Decoder(Announced)
_balances: Final = msgspec.msgpack.Decoder(list[int])

_OPEN: Final = """
    SELECT count(*) FROM cards WHERE closed IS NULL AND (:cluster = '' OR cluster = :cluster)
"""
_CARDS: Final = """
    SELECT name, keeper, state, body, (
        SELECT body FROM limits
        WHERE account = number AND position <= :position ORDER BY position DESC LIMIT 1
    ), (
        SELECT body FROM balances
        WHERE account = number AND position <= :position ORDER BY position DESC LIMIT 1
    )
    FROM accounts CROSS JOIN cards ON cards.account = accounts.number
    WHERE name > :after AND cards.opened <= :position
    AND (cards.closed IS NULL OR cards.closed > :position)
    AND (:cluster = '' OR cluster = :cluster) AND (:node = '' OR node = :node)
    AND substr(node, 1, length(:node_prefix)) = :node_prefix
    ORDER BY name LIMIT :limit
"""
