"""Inventory node: one node of the inventory, with its pods and the claims on its cards."""

from extender.inventory.card_rows import CardColumn
from ledger.core.model.cards import Placement, PreemptionClaim

Place = tuple[str, str]
"""The namespace and the key of a pod."""


class InventoryNode:
    """A node: its row, its columns, the pods on it, and the claims on its cards."""

    __slots__ = ("claims", "columns", "gone", "residents", "row")

    def __init__(self, row: int) -> None:
        self.row = row
        self.gone = False
        self.columns: list[CardColumn] = []
        self.residents: dict[Place, Placement] = {}
        self.claims: dict[Place, PreemptionClaim] = {}

    def frozen_copy(self) -> "InventoryNode":
        """Return the pods on the node as they are now."""
        copy = InventoryNode(self.row)
        copy.residents = dict(self.residents)
        return copy

    def column_of(self, uuid: str) -> int:
        """Return the column of a card. Raises KeyError."""
        for at, column in enumerate(self.columns):
            if column.uuid == uuid:
                return at
        raise KeyError(uuid)
