"""Node failure reasons: why a pod does not fit on a node, and whether evictions could help."""

from collections import Counter
from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Final

import numpy as np
from msgspec import structs

from extender.fit import card_filters
from extender.fit.card_window import CardLoads, CardWindow, Window
from extender.fit.container_order import give_cards
from extender.fit.fit_question import UNUSED_ONLY, FitQuestion
from extender.inventory.card_arrays import Booleans, CardArrays
from ledger.core.model.denials import Reason

if TYPE_CHECKING:
    from extender.fit.feasible_nodes import FitResult

WORDINGS_MAX: Final = 4_096
"""Sentences in the cache, so that nodes with the same cards share one."""

_RANKS: Final = {reason: code for code, reason in sorted(card_filters.REASONS.items())}
"""Of reasons that are as frequent, the one of the higher code is named first."""


def reason_of(fits: "FitResult", place: int) -> str:
    """Return why the node at an index of the question's rows does not fit; empty if it does."""
    if fits.feasible[place]:
        return ""
    if not fits.registered[place]:
        return Reason.NODE_UNREGISTERED
    if fits.insufficient[place]:
        return Reason.NODE_INSUFFICIENT_DEVICE
    return _wording(np.sort(fits.codes[place]).tobytes())


def reasons_of(fits: "FitResult") -> list[str]:
    """Return for every row of the question why it does not fit; empty where it does."""
    reasons = [""] * len(fits.feasible)
    short = fits.insufficient | ~fits.registered
    by_cards = np.nonzero(~fits.feasible & ~short)[0]
    codes, width = np.sort(fits.codes[by_cards], axis=1).tobytes(), fits.codes.shape[1]
    rows = [codes[start : start + width] for start in range(0, len(codes), width)]
    for place, reason in zip(by_cards.tolist(), map(_wording, rows), strict=True):
        reasons[place] = reason
    for place in np.nonzero(~fits.feasible & short)[0].tolist():
        reasons[place] = reason_of(fits, place)
    return reasons


def fits_if_all_evicted(
    arrays: CardArrays, question: FitQuestion, blocks: Sequence[Window]
) -> Booleans:
    """Return on which nodes of these blocks the pod would fit if it were alone there.

    It never would if cards are missing, unhealthy, cordoned, of another kind, or too small. The
    cards that it would get do not matter, so no card is preferred.
    """
    rules = tuple(policy for policy in question.card_policies if policy == UNUSED_ONLY)
    question = structs.replace(question, card_policies=rules)
    fitting = []
    for block in blocks:
        cards = CardWindow(arrays, block)
        fitting.append(give_cards(cards, CardLoads.empty(cards.shape), question).ok)
    ok: Booleans = np.concatenate(fitting)
    return ok


@lru_cache(WORDINGS_MAX)
def _wording(codes: bytes) -> str:
    """Return the number of cards by reason, the most frequent reason first."""
    there = [code for code in np.frombuffer(codes, np.int8).tolist() if code != card_filters.ABSENT]
    counts = Counter(card_filters.REASONS[code] for code in there if code != card_filters.FITS)
    ordered = sorted(counts.items(), key=lambda item: (-item[1], -_RANKS[item[0]]))
    return ", ".join(f"{count}/{len(there)} {reason}" for reason, count in ordered)
