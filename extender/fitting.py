"""Fitting: where a pod fits, on which cards, and how good that is, for all nodes at once.

Sidecars and app containers run together, so they are given cards one after the other. Then each
init container is, beside the sidecars that begin before it, and rather on cards that the pod has.
What a pod books on a card is the most that runs there at once (`cards.booked`).
"""

import msgspec
import numpy as np
from msgspec import structs

from extender import choosing, instances, rowwise, scoring
from extender.arrays import Arrays, Booleans, Integers
from extender.choosing import Container, Given, Step
from extender.expressions import Floats
from extender.loads import Cards, Loads, Overlay, Window, blocks_of, window_of
from extender.question import NO_BOUND, Question
from extender.rules import Codes
from ledger.core.cards import Part, Parts, Phase, Share
from ledger.kube.wishes import PodWish

__all__ = ["NO_BOUND", "Fits", "Question", "fit", "parts_of", "priorities"]


class Fits(msgspec.Struct):
    """The answers about the rows of a question, in its order.

    `score` is higher where the policy prefers it, `steps` has which cards were chosen. Of the nodes
    that are not feasible, `codes` says what is wrong with each card (`rules.REASONS`),
    `insufficient` that there are not enough, and `hopeful` that the pod would fit if nobody else
    were there. Nodes that are not `registered` have no card at all.
    """

    rows: Integers
    feasible: Booleans
    score: Floats
    steps: list[Step]
    codes: Codes
    registered: Booleans
    insufficient: Booleans
    hopeful: Booleans


class _Walk(msgspec.Struct):
    """What is found for a whole pod, in the order of the window."""

    ok: Booleans
    codes: Codes
    insufficient: Booleans
    steps: list[Step]
    peak: Loads


def fit(arrays: Arrays, overlay: Overlay, question: Question) -> Fits:
    """Answer a question about cards as they are and as they probably will be."""
    window, at = window_of(question.rows)
    blocks = [_block(arrays, overlay, question, part) for part in blocks_of(window)]
    joined = _joined(blocks) if len(blocks) > 1 else blocks[0]
    return Fits(
        question.rows,
        joined.feasible[at],
        joined.score[at],
        [_of_rows(step, at) for step in joined.steps],
        joined.codes[at],
        joined.registered[at],
        joined.insufficient[at],
        joined.hopeful[at],
    )


def priorities(fits: Fits) -> Integers:
    """Return scores for kube-scheduler, 10 for the best feasible node, 0 where it does not fit."""
    return scoring.scaled(fits.score, fits.feasible)


def parts_of(fits: Fits, place: int, arrays: Arrays, wish: PodWish) -> Parts:
    """Return the cards that were chosen on the feasible node at a place of the question's rows."""
    row = int(fits.rows[place])
    shares: list[list[Share]] = [[] for _ in wish.wishes]
    for step in fits.steps:
        shares[step.container].append(_share(step, place, arrays, row))
    return tuple(
        Part(one.container, one.phase, tuple(given))
        for one, given in zip(wish.wishes, shares, strict=True)
    )


def _share(step: Step, place: int, arrays: Arrays, row: int) -> Share:
    column, memory = int(step.columns[place]), int(step.memory[place])
    cores, uuid = int(step.cores[place]), arrays.uuids[row][column]
    instance = instances.of_card(arrays, row, column, int(step.instance[place]))
    if instance is None:
        return Share(uuid, memory, cores, step.exclusive)
    name = instance.profile.name
    return Share(uuid, memory, cores, step.exclusive, name, instance.start, instance.size)


def _block(arrays: Arrays, overlay: Overlay, question: Question, window: Window) -> Fits:
    """Answer about the rows of a window, in its order."""
    cards = Cards(arrays, window)
    before = Loads.of(arrays, overlay, window)
    walk = _walk(cards, before, question)
    registered = rowwise.some(cards.present)
    return Fits(
        cards.row_numbers(),
        walk.ok & registered,
        scoring.nodes(cards, before, walk.peak, question.node_policy, question.node_score),
        walk.steps,
        walk.codes,
        registered,
        walk.insufficient,
        _hopeful(cards, question, walk),
    )


def _joined(blocks: list[Fits]) -> Fits:
    """Put the answers about several windows one after the other."""
    steps = [
        Step(
            one[0].container,
            one[0].exclusive,
            np.concatenate([step.columns for step in one]),
            np.concatenate([step.memory for step in one]),
            np.concatenate([step.cores for step in one]),
            np.concatenate([step.instance for step in one]),
        )
        for one in zip(*(block.steps for block in blocks), strict=True)
    ]
    return Fits(
        np.concatenate([block.rows for block in blocks]),
        np.concatenate([block.feasible for block in blocks]),
        np.concatenate([block.score for block in blocks]),
        steps,
        np.concatenate([block.codes for block in blocks]),
        np.concatenate([block.registered for block in blocks]),
        np.concatenate([block.insufficient for block in blocks]),
        np.concatenate([block.hopeful for block in blocks]),
    )


def _of_rows(step: Step, at: Integers) -> Step:
    return step._replace(
        columns=step.columns[at],
        memory=step.memory[at],
        cores=step.cores[at],
        instance=step.instance[at],
    )


def _hopeful(cards: Cards, question: Question, walk: _Walk) -> Booleans:
    """Return on which nodes where it does not fit the pod would if nobody else were there.

    Which cards it would have there does not matter, so none are preferred.
    """
    found = np.zeros(cards.shape[0], np.bool_)
    unsettled = np.nonzero(~(walk.ok | walk.insufficient))[0]
    if len(unsettled):
        question = structs.replace(question, card_policies=("mutex",) if question.alone() else ())
        window, at = window_of(cards.row_numbers()[unsettled])
        alike = Cards(cards.arrays, window)
        found[unsettled] = _walk(alike, Loads.empty(alike.shape), question).ok[at]
    return found


def _walk(cards: Cards, before: Loads, question: Question) -> _Walk:
    """Give every container its cards."""
    rows = cards.shape[0]
    walk = _Walk(
        np.ones(rows, np.bool_),
        np.zeros(cards.shape, np.int8),
        np.zeros(rows, np.bool_),
        [],
        before,
    )
    load, taken = before, np.zeros(rows, np.int64)
    beside: list[tuple[int, Loads, Integers]] = []
    for place, wish in enumerate(question.wish.wishes):
        if not wish.cards:
            continue
        if wish.phase == Phase.INIT:
            beside.append((place, load, taken))
            continue
        given = _give(cards, load, walk, (place, None, taken), question)
        load, taken = given.load, taken + given.taken
    walk.peak = load.copy() if beside else load
    for place, sidecars, theirs in beside:
        ours = walk.peak.slots > before.slots
        given = _give(cards, sidecars, walk, (place, ours, theirs), question)
        walk.peak.raise_to(given.load)
    return walk


def _give(
    cards: Cards,
    load: Loads,
    walk: _Walk,
    container: tuple[int, Booleans | None, Integers],
    question: Question,
) -> Given:
    """Give one container its cards; where that fails, the pod does not fit."""
    place, prefer, taken = container
    left = choosing.room_left(question, taken)
    asked = Container(place, question.wish.wishes[place], prefer, left)
    given = choosing.give(cards, load, asked, question)
    failed = walk.ok & ~given.ok
    walk.codes[failed] = given.codes[failed]
    walk.insufficient |= failed & given.insufficient
    walk.ok &= given.ok
    walk.steps += given.steps
    return given
