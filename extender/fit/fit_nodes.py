"""The fit of a pod on nodes: feasible nodes, cards and scores, for all nodes at once.

Sidecars and app containers run together, so they get cards one after the other. Then each init
container gets cards beside the sidecars that begin before it, preferably cards that the pod has.
A pod books on a card the most that runs there at once (`card_bookings.booked`).
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

import msgspec
import numpy as np
from msgspec import structs

from extender.fit import card_and_node_scores, card_choice, mig_instance_choice
from extender.fit.card_choice import ChoiceStep, ContainerCards, ContainerFit
from extender.fit.card_filters import Codes
from extender.fit.card_window import CardLoads, CardWindow, OverlayArrays, Window
from extender.fit.fit_question import NO_BOUND, UNUSED_ONLY, FitQuestion
from extender.fit.node_score_expression import Floats
from extender.inventory.card_arrays import Booleans, CardArrays, Integers
from ledger.core.model.cards import Part, Parts, Phase, Share
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


class _Walk(msgspec.Struct):
    """The answers about a whole pod, in the order of the window."""

    ok: Booleans
    codes: Codes
    insufficient: Booleans
    steps: list[ChoiceStep]
    peak: CardLoads


def fit(arrays: CardArrays, overlay: OverlayArrays, question: FitQuestion) -> FitResult:
    """Answer a question about cards by their use plus the use in the overlay."""
    window, at = _window_of_rows(question.rows)
    answers = [_answer(arrays, overlay, question, part) for part in _blocks_of_window(window)]
    fits = FitResult(
        question.rows,
        np.concatenate([one.feasible for one in answers])[at],
        np.concatenate([one.score for one in answers])[at],
        _joined(answers, at),
        np.concatenate([one.codes for one in answers])[at],
        np.concatenate([one.registered for one in answers])[at],
        np.concatenate([one.insufficient for one in answers])[at],
        np.zeros(len(at), np.bool_),
    )
    unsettled = np.nonzero(fits.registered & ~(fits.feasible | fits.insufficient))[0]
    if len(unsettled):
        fits.hopeful[unsettled] = _fits_alone(arrays, question, question.rows[unsettled])
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
        Part(one.container, one.phase, tuple(given))
        for one, given in zip(request.containers, shares, strict=True)
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
    walk = _walk(cards, before, question)
    score = card_and_node_scores.nodes(
        cards, before, walk.peak, question.node_policy, question.node_score
    )
    return _Answer(
        walk.ok & cards.registered,
        score,
        walk.codes,
        cards.registered,
        walk.insufficient,
        walk.steps,
    )


def _joined(answers: Sequence[_Answer], at: Integers) -> list[ChoiceStep]:
    """Put the steps of several windows one after the other, and then in the order of `at`.

    A window in which no node was left has fewer steps; its missing steps are undefined.
    """
    found = []
    most = max(len(one.steps) for one in answers)
    longest = next(one.steps for one in answers if len(one.steps) == most)
    for number, first in enumerate(longest):
        steps = [
            one.steps[number] if number < len(one.steps) else _nothing(first, len(one.feasible))
            for one in answers
        ]
        found.append(
            first._replace(
                columns=np.concatenate([step.columns for step in steps])[at],
                memory=np.concatenate([step.memory for step in steps])[at],
                cores=np.concatenate([step.cores for step in steps])[at],
                instance=np.concatenate([step.instance for step in steps])[at],
            )
        )
    return found


def _nothing(step: ChoiceStep, rows: int) -> ChoiceStep:
    none = np.zeros(rows, np.int64)
    return step._replace(columns=none, memory=none, cores=none, instance=none)


def _fits_alone(arrays: CardArrays, question: FitQuestion, rows: Integers) -> Booleans:
    """Return on which of these nodes the pod would fit if it were alone there.

    Its cards do not matter, so no card is preferred.
    """
    rules = tuple(policy for policy in question.card_policies if policy == UNUSED_ONLY)
    question = structs.replace(question, card_policies=rules)
    window, at = _window_of_rows(rows)
    found = []
    for part in _blocks_of_window(window):
        cards = CardWindow(arrays, part)
        found.append(_walk(cards, CardLoads.empty(cards.shape), question).ok)
    ok: Booleans = np.concatenate(found)[at]
    return ok


def _walk(cards: CardWindow, before: CardLoads, question: FitQuestion) -> _Walk:
    """Choose the cards of every container, as long as any node is left."""
    rows = cards.shape[0]
    walk = _Walk(
        np.ones(rows, np.bool_),
        np.zeros(cards.shape, np.int8),
        np.zeros(rows, np.bool_),
        [],
        before,
    )
    load, taken = before, np.zeros(rows, np.int64)
    beside: list[tuple[int, CardLoads, Integers]] = []
    for place, request in enumerate(question.request.containers):
        if not request.cards:
            continue
        if not walk.ok.any():
            return walk
        if request.phase == Phase.INIT:
            beside.append((place, load, taken))
            continue
        given = _give(cards, load, walk, (place, None, taken), question)
        load, taken = given.load, taken + given.taken
    walk.peak = load
    for place, sidecars, theirs in beside:
        if not walk.ok.any():
            break
        ours = walk.peak.slots > before.slots
        given = _give(cards, sidecars, walk, (place, ours, theirs), question)
        walk.peak = walk.peak.raised_to(given.load)
    return walk


def _give(
    cards: CardWindow,
    load: CardLoads,
    walk: _Walk,
    container: tuple[int, Booleans | None, Integers],
    question: FitQuestion,
) -> ContainerCards:
    """Choose the cards of one container; where that fails, the pod does not fit."""
    place, prefer, taken = container
    left = card_choice.memory_left(question, taken)
    asked = ContainerFit(place, question.request.containers[place], prefer, left)
    given = card_choice.choose_cards(cards, load, asked, question)
    failed = walk.ok & ~given.ok
    walk.codes[failed] = given.codes[failed]
    walk.insufficient |= failed & given.insufficient
    walk.ok &= given.ok
    walk.steps += given.steps
    return given
