"""The topology of a node: which of its cards are linked best.

The score of a set of cards is the sum of the scores of its pairs. If there are at most `SETS_MAX`
sets, all are compared. Otherwise a set is grown from each card, by adding the card with the best
links to those in the set, and the best of the grown sets is taken. The caller passes the cards in
the order of the other card policies, such as binpack, and the first of equally good sets is taken.
So those policies break ties.
"""

from itertools import combinations
from math import comb
from typing import Final, NamedTuple

import numpy as np

from extender.fit.card_window import CardWindow, rows_with_any
from extender.fit.node_score_expression import Floats
from extender.inventory.card_arrays import Booleans, Integers

SETS_MAX: Final = 1_024
"""Most sets that are compared for one container: 4 of 12 cards are 495, 8 of 16 are 12,870."""

_NO_SET: Final = -1


def loss(cards: CardWindow, fitting: Booleans) -> Floats:
    """Return for each card the sum of its scores with the others that fit."""
    pairs = _pairs(cards)
    losses: Floats = np.einsum("rij,rj->ri", pairs, fitting.astype(np.float64))
    return losses


def sets(
    cards: CardWindow,
    fitting: Booleans,
    order: Integers,
    memory: Integers,
    bounds: tuple[int, Integers],
) -> Integers:
    """Return the columns of the best set of each row, -1 where there is none or no link is known.

    `order` has the columns of each row, the preferred first. `bounds` are how many cards are
    wanted, and how many MiB they may take together, of `memory` MiB each.
    """
    count, left = bounds
    best = np.full((cards.shape[0], count), _NO_SET)
    numbers = cards.row_numbers()
    at = np.array([at for at, row in enumerate(numbers) if row in cards.arrays.scores], np.int64)
    if not len(at) or count > cards.shape[1]:
        return best
    order, rows = order[at], np.arange(len(at))[:, None]
    pairs = _pairs(cards)[at[:, None, None], order[:, :, None], order[:, None, :]]
    sought = _Sought(
        pairs,
        fitting[at[:, None], order],
        np.broadcast_to(memory, cards.shape)[at[:, None], order],
        count,
        left[at],
    )
    few = comb(cards.shape[1], count) <= SETS_MAX
    picked = _compared(sought) if few else _grown(sought)
    best[at] = np.where(picked == _NO_SET, _NO_SET, order[rows, picked])
    return best


class _Sought(NamedTuple):
    """Sets of as many cards as are `wanted`, of those `there`; their `costs` fit in what is `left`.

    Both in MiB.
    """

    pairs: Floats
    there: Booleans
    costs: Integers
    wanted: int
    left: Integers


def _pairs(cards: CardWindow) -> Floats:
    """Return the scores of all pairs of cards, 0 where nothing is known."""
    columns = cards.shape[1]
    pairs = np.zeros((cards.shape[0], columns, columns))
    for at, row in enumerate(cards.row_numbers()):
        scores = cards.arrays.scores.get(int(row))
        if scores is not None:
            pairs[at] = scores
    return pairs


def _compared(sought: _Sought) -> Integers:
    """Compare all sets; the first of the best is returned."""
    columns = sought.there.shape[1]
    members = np.array(list(combinations(range(columns), sought.wanted)), np.int64)
    first, other = np.nonzero(np.triu(np.ones((columns, columns), np.bool_), 1))
    holds = (members[:, :, None] == np.arange(columns)).any(axis=1)
    both = (holds[:, first] & holds[:, other]).astype(np.float64)
    inside = holds.T.astype(np.int64)
    valid = sought.there.astype(np.int64) @ inside == sought.wanted
    valid &= sought.costs @ inside <= sought.left[:, None]
    score = np.where(valid, sought.pairs[:, first, other] @ both.T, -np.inf)
    best = members[score.argmax(axis=1)]
    chosen: Integers = np.where(rows_with_any(valid)[:, None], best, _NO_SET)
    return chosen


def _grown(sought: _Sought) -> Integers:
    """Grow a set from each card; the first of the best is returned."""
    size, columns = sought.there.shape
    best, members = np.full(size, -np.inf), np.full((size, sought.wanted), _NO_SET)
    for start in range(columns):
        score, grown = _grown_from(sought, start)
        better = score > best
        best[better], members[better] = score[better], grown[better]
    return members


def _grown_from(sought: _Sought, start: int) -> tuple[Floats, Integers]:
    """Add to a card, one after the other, the one with the best links to those that are there."""
    size, columns = sought.there.shape
    rows, members = np.arange(size), np.full((size, sought.wanted), _NO_SET)
    free, room, score = sought.there.copy(), sought.left.copy(), np.zeros(size)
    linked = np.broadcast_to(np.where(np.arange(columns) == start, 0.0, -np.inf), (size, columns))
    for step in range(sought.wanted):
        free &= sought.costs <= room[:, None]
        value = np.where(free, linked, -np.inf)
        column = value.argmax(axis=1)
        score += value[rows, column]
        members[:, step] = column
        room -= sought.costs[rows, column]
        free[rows, column] = False
        linked = (0.0 if step == 0 else linked) + sought.pairs[rows, column]
    return score, members
