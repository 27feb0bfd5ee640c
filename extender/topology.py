"""Topology: which cards of a node are linked best.

A set of cards is as good as the sum of the scores of its pairs. All sets are compared where there
are at most `SETS_MAX`; beyond, one begins with the best pair and adds the card with the best links
to those that are there. Cards are looked at from the one preferred most otherwise, so that the
first of equally linked sets is also the best by the other policies.
"""

from itertools import combinations
from math import comb
from typing import Final

import numpy as np

from extender.arrays import Booleans, Integers
from extender.expressions import Floats
from extender.loads import Cards

SETS_MAX: Final = 1_024
"""Most sets that are compared for one container: 4 of 12 cards are 495, 8 of 16 are 12,870."""

_NO_SET: Final = -1


def loss(cards: Cards, fitting: Booleans) -> Floats:
    """Return for each card the sum of its scores with the others that fit."""
    pairs = _pairs(cards)
    found: Floats = np.einsum("rij,rj->ri", pairs, fitting.astype(np.float64))
    return found


def sets(
    cards: Cards, fitting: Booleans, order: Integers, memory: Integers, bounds: tuple[int, Integers]
) -> Integers:
    """Return the columns of the best set of each row, -1 where there is none.

    `order` has the columns of each row, the preferred first. `bounds` are how many cards are
    wanted, and how many MiB they may take together, of `memory` MiB each.
    """
    count, left = bounds
    rows = np.arange(len(order))[:, None]
    pairs = _pairs(cards)[rows[:, :, None], order[:, :, None], order[:, None, :]]
    there, costs = fitting[rows, order], np.broadcast_to(memory, cards.shape)[rows, order]
    if comb(cards.shape[1], count) <= SETS_MAX:
        picked = _best(pairs, there, costs, count, left)
    else:
        picked = _grown(pairs, there, costs, count, left)
    found: Integers = np.where(picked == _NO_SET, _NO_SET, order[rows, picked])
    return found


def _pairs(cards: Cards) -> Floats:
    """Return the scores of all pairs of cards, 0 where nothing is known."""
    columns = cards.shape[1]
    found = np.zeros((cards.shape[0], columns, columns))
    for at, row in enumerate(cards.row_numbers()):
        scores = cards.arrays.scores.get(int(row))
        if scores is not None:
            found[at] = scores
    return found


def _best(pairs: Floats, there: Booleans, costs: Integers, count: int, left: Integers) -> Integers:
    """Compare all sets; the first of the best is returned."""
    columns = there.shape[1]
    members = np.array(list(combinations(range(columns), count)), np.int64).reshape(-1, count)
    upper = np.triu(np.ones((columns, columns), np.bool_), 1)
    one, other = np.nonzero(upper)
    holds = (members[:, :, None] == np.arange(columns)).any(axis=1)
    both = (holds[:, one] & holds[:, other]).astype(np.float64)
    score = pairs[:, one, other] @ both.T
    valid = (there.astype(np.int64) @ holds.T.astype(np.int64)) == count
    valid &= costs @ holds.T.astype(np.int64) <= left[:, None]
    score = np.where(valid, score, -np.inf)
    found: Integers = np.where(
        valid.any(axis=1, keepdims=True), members[score.argmax(axis=1)], _NO_SET
    )
    return found


def _grown(pairs: Floats, there: Booleans, costs: Integers, count: int, left: Integers) -> Integers:
    """Begin with the best pair and add, one after the other, the card with the best links."""
    size, columns = there.shape
    rows, found = np.arange(size), np.full((size, count), _NO_SET)
    free, room = there.copy(), left.copy()
    gain = np.where(there[:, :, None] & there[:, None, :], pairs, -np.inf)
    gain[:, np.arange(columns), np.arange(columns)] = -np.inf
    value = gain.max(axis=2)
    linked = np.zeros((size, columns))
    for step in range(count):
        free &= costs <= room[:, None]
        value = np.where(free, value if step == 0 else linked, -np.inf)
        column = value.argmax(axis=1)
        found[:, step] = np.where(free.any(axis=1), column, _NO_SET)
        room -= costs[rows, column]
        free[rows, column] = False
        linked += pairs[rows, column]
    found[(found == _NO_SET).any(axis=1)] = _NO_SET
    return found
