"""Rows: writing one node into the arrays, and reading back what must outlast a new layout.

Cards stand in the order of their index, then uuid; after them those that the node lost while pods
hold them, which nobody can be given, but whose use must be known when they are back.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

import numpy as np

from extender.arrays import BOOLEANS, INTEGERS, Arrays
from ledger.core import cards
from ledger.core.cards import Card, Placement

PairScores = Mapping[tuple[str, str], int]
"""How well two cards of a node are linked, by their uuids; more is better."""

SLICES_MAX: Final = 64
"""Most slices of a card that is cut into instances: there is a bit for each."""


class Column(NamedTuple):
    """One card of a node: its lines in the order of `cards.LINES`, `card` None when it is lost."""

    uuid: str
    lines: tuple[int, int, int]
    card: Card | None


def in_order(announced: Iterable[tuple[Card, tuple[int, int, int]]]) -> list[Column]:
    """Return the columns of the cards that a node announces, with their lines."""
    ordered = sorted(announced, key=lambda one: (one[0].index, one[0].uuid))
    return [Column(card.uuid, lines, card) for card, lines in ordered]


def write(
    arrays: Arrays, row: int, columns: list[Column], used: Mapping[str, tuple[int, ...]]
) -> None:
    """Write a row anew: its cards, and what is used of each by uuid."""
    clear(arrays, row)
    for at, column in enumerate(columns):
        arrays.uuids[row][at] = column.uuid
        memory, cores, slots = used.get(column.uuid, (0, 0, 0))
        arrays.used_memory[row, at] = memory
        arrays.used_cores[row, at] = cores
        arrays.used_slots[row, at] = slots
        if column.card is not None:
            _write_card(arrays, row, at, column.card)


def clear(arrays: Arrays, row: int) -> None:
    """Leave nothing in a row."""
    for name in (*INTEGERS, *BOOLEANS, "slices"):
        getattr(arrays, name)[row] = 0
    arrays.uuids[row] = [""] * arrays.columns
    arrays.keepers[row] = ""
    arrays.waiting[row] = 0
    arrays.scores.pop(row, None)


def write_scores(arrays: Arrays, row: int, pairs: PairScores) -> None:
    """Write how well the cards of a row are linked, nothing where nobody says so."""
    arrays.scores.pop(row, None)
    at = {uuid: column for column, uuid in enumerate(arrays.uuids[row]) if uuid}
    found = np.zeros((arrays.columns, arrays.columns), np.int64)
    for (one, other), score in pairs.items():
        if one in at and other in at:
            found[at[one], at[other]] = score
    if found.any():
        arrays.scores[row] = found


def slices_of(placements: Iterable[Placement], uuid: str) -> int:
    """Return the slices of a card that placements have taken, as bits."""
    bits = 0
    for placed in placements:
        for start, size in cards.instances(placed.parts, uuid, initialised=placed.initialised):
            bits |= ((1 << min(size, SLICES_MAX)) - 1) << min(start, SLICES_MAX)
    return bits & ((1 << SLICES_MAX) - 1)


def _write_card(arrays: Arrays, row: int, at: int, card: Card) -> None:
    arrays.memory[row, at], arrays.cores[row, at], arrays.slots[row, at] = card.limits()
    arrays.numa[row, at], arrays.index[row, at] = card.numa, card.index
    arrays.kind[row, at] = _number(arrays.kinds, card.type)
    arrays.vendor[row, at] = _number(arrays.vendors, card.vendor)
    arrays.mode[row, at] = _number(arrays.modes, card.mode)
    arrays.table[row, at] = _number(arrays.tables, card.profiles)
    arrays.present[row, at] = True
    arrays.usable[row, at] = card.healthy
    arrays.cordoned[row, at] = card.cordoned


def _number(known: list[Any], value: object) -> int:
    """Return the number of a value in a list of all that there are."""
    if value not in known:
        known.append(value)
    return known.index(value)
