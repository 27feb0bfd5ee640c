"""Card listing for commands: every card of one node or of all, and its pods, at a moment."""

from collections.abc import Iterator

import msgspec

from gpuledger.storage.projection_views import paged, viewing
from ledger.runtime.settings.settings import Settings
from projections.queries.card_usage import CardUsage, cards
from projections.queries.pods_on_cards import PodOnCard


class CardRow(msgspec.Struct, frozen=True):
    """A pod on a card, as one line of a table; an empty card has a line without a pod."""

    cluster: str
    node: str
    index: int
    uuid: str
    namespace: str = ""
    key: str = ""
    memory: int = 0
    cores: int = 0
    exclusive: bool = False
    stage: str = ""
    since: str = ""


async def list_cards(
    settings: Settings, node: str, cluster: str, at: str, *, pods: bool
) -> list[CardUsage]:
    """Return the cards of the nodes of a name, or of all nodes, in order. Raises CommandError."""
    async with viewing(settings, at) as (view, position):
        rows = await paged(
            lambda size, after: cards(
                view, position, limit=size, cluster=cluster, node=node, after=after, pods=pods
            )
        )
    return sorted(rows, key=lambda one: (one.cluster, one.node, one.index, one.uuid))


def card_rows(found: list[CardUsage]) -> list[CardRow]:
    """Return a line for every pod on a card, and one for every empty card."""
    return [line for card in found for line in _card_rows(card)]


def _card_rows(card: CardUsage) -> Iterator[CardRow]:
    where = (card.cluster, card.node, card.index, card.uuid)
    pods: list[PodOnCard] = [] if card.pods is msgspec.UNSET else card.pods
    if not pods:
        yield CardRow(*where)
    for one in pods:
        amounts = (one.memory, one.cores, one.exclusive)
        yield CardRow(*where, one.namespace, one.key, *amounts, one.stage, one.since)
