"""Repeated fits: the answers about pods that ask for the same, of which only changed rows are new.

Pods of one controller ask for the same cards, and from one of them to the next the use of a few
nodes changes. The use by which an answer was computed is kept beside it and compared with the use
of now, so that no writer of the arrays has to announce a change. A change of the cards themselves
is noticed by `CardArrays.layout`.
"""

from collections import OrderedDict
from typing import Final

import msgspec
import numpy as np

from extender.fit.card_choice import ChoiceStep
from extender.fit.card_window import CardLoads, OverlayArrays
from extender.fit.feasible_nodes import FitResult, fit
from extender.fit.fit_question import FitQuestion
from extender.inventory.card_arrays import CardArrays, Integers

ROWS_LEAST: Final = 512
"""Questions about fewer rows are not repeated ones: numpy takes as long for a few as for these."""

QUESTIONS_MAX: Final = 4
"""Questions whose answers are kept: 5,000 nodes of eight cards take about 2.5 MB each."""

_FEW: Final = 4
"""If more than one of so many rows has changed, all are fitted again."""

_BY_ROW: Final = ("feasible", "score", "codes", "registered", "insufficient", "hopeful")
_OF_STEP: Final = ("columns", "memory", "cores", "instance")
_OF_CARD: Final = ("memory", "cores", "slots", "alone", "slices")


class RepeatedFits:
    """Fits pods, and keeps the answers to the last questions that were asked more than once."""

    def __init__(self) -> None:
        """Keep nothing yet."""
        self._kept: OrderedDict[tuple[object, ...], _KeptAnswer | None] = OrderedDict()

    def fit(self, arrays: CardArrays, overlay: OverlayArrays, question: FitQuestion) -> FitResult:
        """Answer a question about any rows as `feasible_nodes.fit` does."""
        rows = question.rows
        first, last = int(rows.min()), int(rows.max()) + 1
        if 2 * len(rows) < last - first:
            return fit(arrays, overlay, question)
        key = _key(question)
        if key not in self._kept:
            self._keep(key, None)
            return fit(arrays, overlay, question)
        kept = self._kept[key]
        if kept is None or not (kept.covers(arrays, first, last) and kept.renew(overlay)):
            kept = _KeptAnswer(arrays, overlay, question=question, window=slice(first, last))
        self._keep(key, kept)
        return kept.about(rows)

    def _keep(self, key: tuple[object, ...], kept: "_KeptAnswer | None") -> None:
        self._kept[key] = kept
        self._kept.move_to_end(key)
        if len(self._kept) > QUESTIONS_MAX:
            self._kept.popitem(last=False)


class _KeptAnswer:
    """The answer about all rows of a window, and the use of their cards at that time."""

    def __init__(
        self, arrays: CardArrays, overlay: OverlayArrays, *, question: FitQuestion, window: slice
    ) -> None:
        self._arrays, self._layout, self._window = arrays, arrays.layout, window
        rows = np.arange(window.start, window.stop)
        self._question = msgspec.structs.replace(question, rows=rows)
        self._loads = self._use(overlay)
        self._fits = fit(arrays, overlay, self._question)

    def covers(self, arrays: CardArrays, first: int, last: int) -> bool:
        """Return whether the answer is about these rows, with the cards that they have now."""
        same = arrays is self._arrays and arrays.layout == self._layout
        return same and self._window.start <= first and last <= self._window.stop

    def renew(self, overlay: OverlayArrays) -> bool:
        """Fit the rows again whose use has changed; return False if all are to be fitted."""
        loads = self._use(overlay)
        changed = self._changed(loads)
        if len(changed):
            if _FEW * len(changed) > self._window.stop - self._window.start:
                return False
            rows = self._window.start + changed
            part = fit(self._arrays, overlay, msgspec.structs.replace(self._question, rows=rows))
            if len(part.steps) > len(self._fits.steps):
                return False
            self._enter(changed, part)
        self._loads = loads
        return True

    def about(self, rows: Integers) -> FitResult:
        """Return the answer about some rows, which later changes leave alone."""
        at, fits = rows - self._window.start, self._fits
        return FitResult(
            rows,
            fits.feasible[at],
            fits.score[at],
            [_picked(step, at) for step in fits.steps],
            fits.codes[at],
            fits.registered[at],
            fits.insufficient[at],
            fits.hopeful[at],
        )

    def _use(self, overlay: OverlayArrays) -> CardLoads:
        """Return the use of the window as it is now, which later changes leave alone."""
        loads = CardLoads.of(self._arrays, overlay, self._window)
        loads.slices = loads.slices.copy()
        return loads

    def _changed(self, loads: CardLoads) -> Integers:
        """Return the rows of the window with another use than at the last time."""
        changed = [
            np.flatnonzero(getattr(loads, name) != getattr(self._loads, name)) for name in _OF_CARD
        ]
        rows: Integers = np.unique(np.concatenate(changed) // loads.memory.shape[1])
        return rows

    def _enter(self, at: Integers, part: FitResult) -> None:
        """Replace the answer about these rows of the window.

        A part without a feasible row may have fewer steps; those of infeasible rows are undefined.
        """
        for name in _BY_ROW:
            getattr(self._fits, name)[at] = getattr(part, name)
        for step, new in zip(self._fits.steps, part.steps, strict=False):
            for name in _OF_STEP:
                getattr(step, name)[at] = getattr(new, name)


def _key(question: FitQuestion) -> tuple[object, ...]:
    """Return everything that a question asks, except the rows."""
    return tuple(getattr(question, name) for name in question.__struct_fields__ if name != "rows")


def _picked(step: ChoiceStep, at: Integers) -> ChoiceStep:
    return step._replace(**{name: getattr(step, name)[at] for name in _OF_STEP})
