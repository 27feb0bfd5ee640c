"""Fit report's cards: the free amounts of a node's cards, and the reason against each for a pod."""

from collections.abc import Mapping
from typing import Final

import msgspec

from extender.fit import card_filters
from extender.fit.feasible_nodes import FitResult
from extender.inventory.card_arrays import CardArrays
from ledger.core.model.cards import Parts
from ledger.core.model.denials import Reason
from ledger.kube.requests.device_requests import PodDeviceRequest

_AMOUNTS: Final[Mapping[Reason, str]] = {
    Reason.CARD_INSUFFICIENT_MEMORY: "memory",
    Reason.CARD_INSUFFICIENT_CORE: "cores",
}
"""The reasons about an amount that is too small."""


class CardVerdict(msgspec.Struct, frozen=True):
    """One card: its free MiB, percent and containers, and why it cannot be given.

    `short` is the missing amount for the largest of the pod's requests, 0 if the reason is about no
    amount. A card without a reason is `chosen`, or was not needed.
    """

    index: int
    uuid: str
    type: str
    free_memory: int
    free_cores: int
    free_slots: int
    reason: str
    short: int
    chosen: bool


def verdicts(
    fits: FitResult, place: int, arrays: CardArrays, request: PodDeviceRequest, parts: Parts
) -> list[CardVerdict]:
    """Return the verdicts about the cards of the node at a place of the question's rows."""
    row = int(fits.rows[place])
    chosen = {share.uuid for part in parts for share in part.shares}
    return [
        _verdict(fits, place, arrays, column, request, chosen)
        for column in range(arrays.columns)
        if arrays.present[row, column]
    ]


def _verdict(
    fits: FitResult,
    place: int,
    arrays: CardArrays,
    column: int,
    request: PodDeviceRequest,
    chosen: set[str],
) -> CardVerdict:
    row, reason = int(fits.rows[place]), None
    if not fits.feasible[place]:
        reason = card_filters.REASONS.get(int(fits.codes[place, column]))
    free = {
        name: int(getattr(arrays, name)[row, column] - getattr(arrays, f"used_{name}")[row, column])
        for name in ("memory", "cores", "slots")
    }
    amount = _AMOUNTS.get(reason) if reason is not None else None
    wanted = _largest(request, amount, int(arrays.memory[row, column])) if amount else 0
    uuid = arrays.uuids[row][column]
    return CardVerdict(
        int(arrays.index[row, column]),
        uuid,
        arrays.kinds[arrays.kind[row, column]],
        free["memory"],
        free["cores"],
        free["slots"],
        str(reason or ""),
        max(0, wanted - free[amount]) if amount else 0,
        uuid in chosen,
    )


def _largest(request: PodDeviceRequest, amount: str, memory: int) -> int:
    """Return the largest amount that any container requests of a card of this many MiB."""
    asked = [card for container in request.containers for card in container.cards]
    if amount == "cores":
        return max(card.cores for card in asked)
    return max(card.memory or card.percentage * memory // 100 for card in asked)
