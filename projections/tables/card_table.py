"""The table of cards: those announced by nodes, and those lost that pods still hold."""

import sqlite3
from typing import Final

import msgspec

from ledger.core.evolve.announced_and_lost_cards import account_of
from ledger.core.model.cards import Card, NodeCards
from ledger.core.model.qualified_names import split_qualified
from projections.record_changes import RecordChange
from projections.tables.interval_rows import IntervalRows
from projections.tables.name_numbers import NameNumbers

ANNOUNCED: Final = "announced"
"""The node announces the card."""
LOST: Final = "lost"
"""The node no longer announces the card, and pods still hold it."""
GONE: Final = "gone"
"""The node no longer exists, and pods still hold the card."""


class CardEntry(msgspec.Struct, frozen=True):
    """A card of a node, the device plugin that hands it out, and its state."""

    card: Card
    keeper: str
    state: str


class CardTable:
    """The table `cards`."""

    def __init__(self, names: NameNumbers) -> None:
        self._names = names
        columns = ("account", "cluster", "node", "keeper", "state", "body")
        self._rows = IntervalRows("cards", identity=("account",), columns=columns)

    def collect(self, change: RecordChange) -> None:
        """Close and open the rows of changed and lost cards."""
        for node, known in change.nodes.items():
            before, after = _card_entries(known), _card_entries(change.state.nodes.get(node))
            for uuid in sorted(before.keys() | after.keys()):
                old, new = before.get(uuid), after.get(uuid)
                if old != new:
                    self._replace(node, uuid, old, new, change.record.position)

    def _replace(
        self, node: str, uuid: str, old: CardEntry | None, new: CardEntry | None, position: int
    ) -> None:
        account = self._names.account(account_of(node, uuid), position)
        if old is not None:
            self._rows.close((account,), position)
        if new is not None:
            cluster, name = split_qualified(node)
            body = msgspec.json.encode(new.card).decode()
            row = (account, cluster, name, new.keeper, new.state, body)
            self._rows.open((account,), row, position)

    def write(self, connection: sqlite3.Connection) -> None:
        """Write the collected rows. Raises DamagedProjection when a row to close is not open."""
        self._rows.write(connection)


def _card_entries(node: NodeCards | None) -> dict[str, CardEntry]:
    """Return the cards of a node by uuid, with those that it lost."""
    if node is None:
        return {}
    lost = GONE if node.gone else LOST
    entries = {card.uuid: CardEntry(card, node.keeper, lost) for card in node.lost}
    return entries | {card.uuid: CardEntry(card, node.keeper, ANNOUNCED) for card in node.cards}
