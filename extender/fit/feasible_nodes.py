"""Feasible nodes: the nodes on which a pod fits, with cards and scores, for all nodes at once.

A pod fits on a node if all its containers get cards there (`container_order`).
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

import msgspec
import numpy as np

from extender.fit import card_and_node_scores, mig_instance_choice
from extender.fit.card_choice import ChoiceStep
from extender.fit.card_filters import Codes
from extender.fit.card_window import CardLoads, CardWindow, OverlayArrays, Window
from extender.fit.container_order import give_cards
from extender.fit.fit_question import NO_BOUND, FitQuestion
from extender.fit.node_failure_reasons import fits_if_all_evicted
from extender.fit.node_score_expression import Floats
from extender.inventory.card_arrays import Booleans, CardArrays, Integers
from ledger.core.model.cards import Part, Parts, Share
from ledger.kube.requests.device_requests import PodDeviceRequest

BLOCK_ROWS: Final = 1_024
"""Most rows that are worked on at a time, so that they stay in the cache of a processor."""

__all__ = ["NO_BOUND", "FitQuestion", "FitResult", "chosen_parts", "fit", "priorities"]


class FitResult(msgspec.Struct):
    """The answers about the rows of a question, in its order.

    `score` is higher for nodes that the policy prefers; `steps` are the chosen cards. Of infeasible
    nodes, `codes` has the code of each card (`card_filters.REASONS`), `insufficient` marks those
    without enough cards, and `hopeful` those where the pod would fit if it were alone. Nodes that
    are not `registered` have no card.
    """

    rows: Integers
    feasible: Booleans
    score: Floats
    steps: list[ChoiceStep]
    codes: Codes
    registered: Booleans
    insufficient: Booleans
    hopeful: Booleans


class _Answer(NamedTuple):
    """The part of `FitResult` about the rows of one window."""

    feasible: Booleans
    score: Floats
    codes: Codes
    registered: Booleans
    insufficient: Booleans
    steps: list[ChoiceStep]


def fit(arrays: CardArrays, overlay: OverlayArrays, question: FitQuestion) -> FitResult:
    """Answer a question about cards by their use plus the use in the overlay."""
    window, at = _window_of_rows(question.rows)
    answers = [_answer(arrays, overlay, question, part) for part in _blocks_of_window(window)]
    fits = FitResult(
        question.rows,
        np.concatenate([answer.feasible for answer in answers])[at],
        np.concatenate([answer.score for answer in answers])[at],
        _joined(answers, at),
        np.concatenate([answer.codes for answer in answers])[at],
        np.concatenate([answer.registered for answer in answers])[at],
        np.concatenate([answer.insufficient for answer in answers])[at],
        np.zeros(len(at), np.bool_),
    )
    unsettled = np.nonzero(fits.registered & ~(fits.feasible | fits.insufficient))[0]
    if len(unsettled):
        window, at = _window_of_rows(question.rows[unsettled])
        hopeful = fits_if_all_evicted(arrays, question, _blocks_of_window(window))
        fits.hopeful[unsettled] = hopeful[at]
    return fits


def priorities(fits: FitResult) -> Integers:
    """Return scores for kube-scheduler: 10 for the best node, 0 for infeasible nodes."""
    return card_and_node_scores.scaled(fits.score, fits.feasible)


def chosen_parts(
    fits: FitResult, place: int, arrays: CardArrays, request: PodDeviceRequest
) -> Parts:
    """Return the chosen cards of the feasible node at an index of the question's rows."""
    row = int(fits.rows[place])
    shares: list[list[Share]] = [[] for _ in request.containers]
    for step in fits.steps:
        shares[step.container].append(_share(step, place, arrays, row))
    return tuple(
        Part(container.container, container.phase, tuple(given))
        for container, given in zip(request.containers, shares, strict=True)
    )


def _window_of_rows(rows: Integers) -> tuple[Window, Integers]:
    """Return the window of rows to fit, and the indexes of these rows in it.

    If most rows of a range are asked for, the window is the whole range, because a slice is a view
    but picked rows are copies.
    """
    if not len(rows):
        return slice(0, 0), rows
    first, last = int(rows.min()), int(rows.max()) + 1
    if 2 * len(rows) >= last - first:
        return slice(first, last), rows - first
    return rows, np.arange(len(rows))


def _blocks_of_window(window: Window) -> list[Window]:
    """Return a window in blocks of at most `BLOCK_ROWS` rows."""
    if not isinstance(window, slice):
        return [window[at : at + BLOCK_ROWS] for at in range(0, len(window), BLOCK_ROWS)]
    starts = range(window.start, max(window.stop, window.start + 1), BLOCK_ROWS)
    return [slice(at, min(at + BLOCK_ROWS, window.stop)) for at in starts]


def _share(step: ChoiceStep, place: int, arrays: CardArrays, row: int) -> Share:
    column, memory = int(step.columns[place]), int(step.memory[place])
    cores, uuid = int(step.cores[place]), arrays.uuids[row][column]
    number = int(step.instance[place])
    if number == mig_instance_choice.NONE:
        return Share(uuid, memory, cores, step.exclusive)
    instance = mig_instance_choice.instance_of_card(arrays, row, column, number)
    name = instance.profile.name
    return Share(uuid, memory, cores, step.exclusive, name, instance.start, instance.size)


def _answer(
    arrays: CardArrays, overlay: OverlayArrays, question: FitQuestion, window: Window
) -> _Answer:
    """Answer about the rows of a window, in its order."""
    cards = CardWindow(arrays, window)
    before = CardLoads.of(arrays, overlay, window)
    pod_cards = give_cards(cards, before, question)
    score = card_and_node_scores.nodes(
        cards, before, pod_cards.peak, question.node_policy, question.node_score
    )
    return _Answer(
        pod_cards.ok & cards.registered,
        score,
        pod_cards.codes,
        cards.registered,
        pod_cards.insufficient,
        pod_cards.steps,
    )


def _joined(answers: Sequence[_Answer], at: Integers) -> list[ChoiceStep]:
    """Put the steps of several windows one after the other, and then in the order of `at`.

    A window in which no node was left has fewer steps; its missing steps are undefined.
    """
    joined = []
    most = max(len(answer.steps) for answer in answers)
    longest = next(answer.steps for answer in answers if len(answer.steps) == most)
    for number, first in enumerate(longest):
        steps = [
            answer.steps[number]
            if number < len(answer.steps)
            else _nothing(first, len(answer.feasible))
            for answer in answers
        ]
        joined.append(
            first._replace(
                columns=np.concatenate([step.columns for step in steps])[at],
                memory=np.concatenate([step.memory for step in steps])[at],
                cores=np.concatenate([step.cores for step in steps])[at],
                instance=np.concatenate([step.instance for step in steps])[at],
            )
        )
    return joined


def _nothing(step: ChoiceStep, rows: int) -> ChoiceStep:
    none = np.zeros(rows, np.int64)
    return step._replace(columns=none, memory=none, cores=none, instance=none)
