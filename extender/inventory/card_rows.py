"""Card rows: the cards of one node, written to the card arrays.

Cards are in the order of index, then uuid. Lost cards that pods still hold come after them: they
cannot be given, but their use must be known when they return.
"""

from collections.abc import Iterable, Mapping, Set
from typing import Any, Final, NamedTuple

import numpy as np

from extender.inventory.card_arrays import BOOLEANS, INTEGERS, CardArrays
from ledger.core.model import card_bookings, cards
from ledger.core.model.cards import Card, Phase, Placement

PairScores = Mapping[tuple[str, str], int]
"""Link scores of pairs of cards of a node, by their uuids; higher is better."""

SLICES_MAX: Final = 64
"""Most slices of a MIG card: there is a bit for each."""

ALL_SLICES: Final = (1 << SLICES_MAX) - 1


class CardColumn(NamedTuple):
    """One card of a node: its lines in the order of `cards.LINES`, `card` None when it is lost.

    A card that `is_cut` is given in instances.
    """

    uuid: str
    lines: tuple[int, int, int]
    card: Card | None
    is_cut: bool = False


def in_order(announced: Iterable[tuple[Card, tuple[int, int, int]]]) -> list[CardColumn]:
    """Return the columns of the cards that a node announces, with their lines."""
    ordered = sorted(announced, key=lambda pair: (pair[0].index, pair[0].uuid))
    return [CardColumn(card.uuid, lines, card, card.mode == cards.MIG) for card, lines in ordered]


def write(
    arrays: CardArrays, row: int, columns: list[CardColumn], used: Mapping[str, tuple[int, ...]]
) -> None:
    """Write the cards of an empty row, and the use of each by uuid."""
    arrays.layout += 1
    arrays.uuids[row][: len(columns)] = [column.uuid for column in columns]
    for at, column in enumerate(columns):
        if any(used.get(column.uuid, ())):
            memory, cores, slots = used[column.uuid]
            arrays.used_memory[row, at] = memory
            arrays.used_cores[row, at] = cores
            arrays.used_slots[row, at] = slots
    _write_cards(arrays, row, [column.card for column in columns if column.card is not None])


def clear(arrays: CardArrays, row: int) -> None:
    """Empty a row."""
    arrays.layout += 1
    for name in (*INTEGERS, *BOOLEANS, "slices"):
        getattr(arrays, name)[row] = 0
    arrays.uuids[row] = [""] * arrays.columns
    arrays.keepers[row] = ""
    arrays.waiting[row] = 0
    arrays.scores.pop(row, None)


def write_scores(arrays: CardArrays, row: int, pairs: PairScores) -> None:
    """Write the link scores of a row, none if they are unknown."""
    arrays.layout += 1
    arrays.scores.pop(row, None)
    if not pairs:
        return
    at = {uuid: column for column, uuid in enumerate(arrays.uuids[row]) if uuid}
    scores = np.zeros((arrays.columns, arrays.columns), np.int64)
    for (first, other), score in pairs.items():
        if first in at and other in at:
            scores[at[first], at[other]] = score
    if scores.any():
        arrays.scores[row] = scores


def write_offered(arrays: CardArrays, row: int, uuids: Set[str]) -> None:
    """Mark the cards of a row that kube-scheduler allocates for resource claims."""
    if not uuids and not arrays.any_offered:
        return
    offered = np.array([uuid in uuids for uuid in arrays.uuids[row]], np.bool_)
    if not (offered != arrays.offered[row]).any():
        return
    arrays.layout += 1
    arrays.offered[row] = offered
    arrays.any_offered = bool(arrays.offered.any())


def slices_of(placements: Iterable[Placement], uuid: str) -> int:
    """Return the slices of a card that placements use, as bits."""
    bits = 0
    for placed in placements:
        lying = card_bookings.instances(placed.parts, uuid, initialised=placed.initialised)
        for start, size in lying:
            bits |= ((1 << min(size, SLICES_MAX)) - 1) << min(start, SLICES_MAX)
    return bits & ALL_SLICES


def lies_anywhere(placed: Placement, uuid: str) -> bool:
    """Return whether a placement has a share of a card without known slices."""
    return any(
        share.uuid == uuid and not share.profile
        for part in placed.parts
        if not (placed.initialised and part.phase == Phase.INIT)
        for share in part.shares
    )


def _write_cards(arrays: CardArrays, row: int, announced: list[Card]) -> None:
    """Write cards into the first columns of a row, one array at a time."""
    width = len(announced)
    arrays.memory[row, :width] = [card.memory for card in announced]
    arrays.cores[row, :width] = [card.cores for card in announced]
    arrays.slots[row, :width] = [card.slots for card in announced]
    arrays.numa[row, :width] = [card.numa for card in announced]
    arrays.index[row, :width] = [card.index for card in announced]
    arrays.kind[row, :width] = [_number(arrays.kinds, card.type) for card in announced]
    arrays.vendor[row, :width] = [_number(arrays.vendors, card.vendor) for card in announced]
    arrays.mode[row, :width] = [_number(arrays.modes, card.mode) for card in announced]
    arrays.table[row, :width] = [_number(arrays.tables, card.profiles) for card in announced]
    arrays.present[row, :width] = True
    arrays.usable[row, :width] = [card.healthy for card in announced]
    arrays.cordoned[row, :width] = [card.cordoned for card in announced]


def _number(known: list[Any], value: object) -> int:
    """Return the index of a value in a list, to which a new value is appended."""
    try:
        return known.index(value)
    except ValueError:
        known.append(value)
        return len(known) - 1
