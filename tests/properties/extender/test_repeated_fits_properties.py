"""Repeated fits: kept answers, renewed where the use has changed, are those of a new fit."""

from collections.abc import Iterator
from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.generators.fit_cases import Case, case
from support.harness.fit_harness import answers_in, arrays_of

from extender.fit import repeated_fits
from extender.fit.feasible_nodes import FitQuestion, fit
from extender.fit.repeated_fits import RepeatedFits
from extender.inventory import card_rows
from extender.inventory.card_arrays import CardArrays
from extender.inventory.unrecorded_card_use import UsageOverlay
from ledger.core.model.card_bookings import Booking
from ledger.core.model.cards import Card

QUESTIONS = 8
"""Asked in a row, each after at most two changes."""

USES = {
    "used_memory": (20_000, 80_000),
    "used_cores": (60, 100),
    "used_slots": (1, 10),
    "alone": (1,),
    "slices": (1, 0x7F, 0xFF),
}
"""The acknowledged use of a card besides none; any of these may change alone."""


@pytest.fixture(autouse=True)
def of_any_share() -> Iterator[None]:
    """Renew answers also if most of their rows have changed."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(repeated_fits, "_FEW", 1)
        yield


class _Changes:
    """Arrays of cards and an overlay, which change as the inventory changes them."""

    def __init__(self, asked: Case, random: Random) -> None:
        self.arrays = arrays_of(asked.nodes)
        self.overlay = UsageOverlay(self.arrays.rows, self.arrays.columns)
        self._random = random

    def happen(self) -> None:
        """Change nothing, the use of cards, an assumed pod, or the cards of a node."""
        changes = (self._use, self._use, self._fill, self._assume, self._replace, self._link)
        for _ in range(self._random.randint(0, 2)):
            self._random.choice(changes)()

    def _use(self) -> None:
        row, column = self._spot()
        name = self._random.choice(list(USES))
        used = getattr(self.arrays, name)
        used[row, column] = 0 if used[row, column] else self._random.choice(USES[name])

    def _fill(self) -> None:
        """Let all cards be full, or unused."""
        full = self._random.random() < 0.5
        self.arrays.used_slots[:] = self.arrays.slots if full else 0

    def _assume(self) -> None:
        uid = self._random.choice("ab")
        if self.overlay.drop(uid):
            return
        row, column = self._spot()
        self.overlay.add(uid, row, {column: Booking(20_000, 60, 1)}, {column})

    def _replace(self) -> None:
        """Remove the cards of a node, or let a node without cards have some."""
        row = self._spot()[0]
        if self.arrays.present[row].any():
            card_rows.clear(self.arrays, row)
            return
        width = self._random.randint(1, self.arrays.columns)
        made = [Card(f"GPU-{at}", at, "NVIDIA A10", 81_920, 100, 10) for at in range(width)]
        columns = card_rows.in_order((card, (0, 0, 0)) for card in made)
        card_rows.write(self.arrays, row, columns, {})

    def _link(self) -> None:
        """Let the cards of a node have other links."""
        row = self._spot()[0]
        uuids = [uuid for uuid in self.arrays.uuids[row] if uuid]
        pairs = {
            (first, other): self._random.choice((0, 10, 200))
            for first in uuids
            for other in uuids
            if first < other
        }
        both = pairs | {(other, first): score for (first, other), score in pairs.items()}
        card_rows.write_scores(self.arrays, row, both)

    def _spot(self) -> tuple[int, int]:
        arrays = self.arrays
        return self._random.randrange(arrays.rows), self._random.randrange(arrays.columns)


def _question(asked: Case, arrays: CardArrays, random: Random) -> FitQuestion:
    rows = random.sample(range(arrays.rows), random.choice((arrays.rows, arrays.rows, 1)))
    terms = asked.terms
    numbers = np.array(rows, np.int64)
    return FitQuestion(
        asked.request, numbers, terms.node_policy, terms.card_policies, terms.weights, terms.room
    )


@settings(max_examples=300, deadline=None)
@given(st.integers(0, 2**40))
def test_a_repeated_question_is_answered_like_a_new_one(seed: int) -> None:
    asked, random, repeated = case(seed), Random(seed), RepeatedFits()
    changes = _Changes(asked, random)
    arrays, request = changes.arrays, asked.request
    for _ in range(QUESTIONS):
        changes.happen()
        question = _question(asked, arrays, random)
        expected = answers_in(fit(arrays, changes.overlay, question), arrays, request)
        assert answers_in(repeated.fit(arrays, changes.overlay, question), arrays, request) == (
            expected
        )


def test_an_answer_that_was_given_does_not_change_with_the_cards() -> None:
    asked, repeated, random = case(3), RepeatedFits(), Random(3)
    changes = _Changes(asked, random)
    arrays = changes.arrays
    question = FitQuestion(asked.request, np.arange(arrays.rows))
    repeated.fit(arrays, changes.overlay, question)
    given = repeated.fit(arrays, changes.overlay, question)
    before = answers_in(given, arrays, asked.request)
    arrays.used_slots[:] = arrays.slots
    later = answers_in(repeated.fit(arrays, changes.overlay, question), arrays, asked.request)
    assert later != before
    assert answers_in(given, arrays, asked.request) == before


def test_few_answers_are_kept_when_pods_ask_for_different_cards() -> None:
    asked, repeated = case(3), RepeatedFits()
    changes = _Changes(asked, Random(3))
    rows = np.arange(changes.arrays.rows)
    for room in range(3 * repeated_fits.QUESTIONS_MAX):
        repeated.fit(
            changes.arrays, changes.overlay, FitQuestion(asked.request, rows, memory_room=room)
        )
    assert len(repeated._kept) == repeated_fits.QUESTIONS_MAX


def test_cards_that_were_loaded_again_are_fitted_again() -> None:
    asked, repeated = case(3), RepeatedFits()
    question = FitQuestion(asked.request, np.arange(len(asked.nodes)))
    for count in (2, 1, 1):
        changes = _Changes(asked, Random(3))
        if count == 1:
            changes.arrays.slots[:] = 0
        for _ in range(count):
            given = repeated.fit(changes.arrays, changes.overlay, question)
        expected = fit(changes.arrays, changes.overlay, question)
        assert answers_in(given, changes.arrays, asked.request) == (
            answers_in(expected, changes.arrays, asked.request)
        )
