"""Row-wise: one value per node from the values of its cards.

A node has few cards, and numpy is slow along a short last axis: turned round first, the same takes
a quarter of the time.
"""

import numpy as np

from extender.fit.node_score_expression import Floats
from extender.inventory.arrays import Booleans, Integers


def total(amounts: Integers) -> Integers:
    """Return the sum of each row."""
    found: Integers = np.einsum("rc->r", amounts)
    return found


def total_of(amounts: Integers, among: Booleans) -> Integers:
    """Return the sum of each row, of the cards among these."""
    found: Integers = np.einsum("rc,rc->r", amounts, among)
    return found


def count(among: Booleans) -> Integers:
    """Return how many cards of each row are among these."""
    found: Integers = np.add.reduce(np.ascontiguousarray(among.T), axis=0, dtype=np.int64)
    return found


def some(among: Booleans) -> Booleans:
    """Return whether any card of each row is among these."""
    found: Booleans = np.logical_or.reduce(np.ascontiguousarray(among.T), axis=0)
    return found


def lowest(values: Floats) -> Floats:
    """Return the lowest value of each row."""
    found: Floats = np.minimum.reduce(np.ascontiguousarray(values.T), axis=0)
    return found
