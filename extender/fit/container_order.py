"""Container order: the order in which the containers of a pod get their cards.

Sidecars and app containers run together, so they get cards one after the other. Then each init
container gets cards beside the sidecars that begin before it, preferably cards that the pod has.
A pod books on a card the most that runs there at once (`card_bookings.booked`).
"""

import msgspec
import numpy as np

from extender.fit import card_choice
from extender.fit.card_choice import ChoiceStep, ContainerCards, ContainerFit
from extender.fit.card_filters import Codes
from extender.fit.card_window import CardLoads, CardWindow
from extender.fit.fit_question import FitQuestion
from extender.inventory.card_arrays import Booleans, Integers
from ledger.core.model.cards import Phase


class PodCards(msgspec.Struct):
    """The cards of a whole pod: the outcome for each node, in the order of the window.

    `ok` are the nodes where every container has its cards, and `peak` is the use of their cards at
    the fullest moment of the pod.
    """

    ok: Booleans
    codes: Codes
    insufficient: Booleans
    steps: list[ChoiceStep]
    peak: CardLoads


def give_cards(cards: CardWindow, before: CardLoads, question: FitQuestion) -> PodCards:
    """Choose the cards of every container, as long as any node is left."""
    rows = cards.shape[0]
    pod_cards = PodCards(
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
        if not pod_cards.ok.any():
            return pod_cards
        if request.phase == Phase.INIT:
            beside.append((place, load, taken))
            continue
        given = _give(cards, load, pod_cards, (place, None, taken), question)
        load, taken = given.load, taken + given.taken
    pod_cards.peak = load
    for place, sidecars, theirs in beside:
        if not pod_cards.ok.any():
            break
        ours = pod_cards.peak.slots > before.slots
        given = _give(cards, sidecars, pod_cards, (place, ours, theirs), question)
        pod_cards.peak = pod_cards.peak.raised_to(given.load)
    return pod_cards


def _give(
    cards: CardWindow,
    load: CardLoads,
    pod_cards: PodCards,
    container: tuple[int, Booleans | None, Integers],
    question: FitQuestion,
) -> ContainerCards:
    """Choose the cards of one container; where that fails, the pod does not fit."""
    place, prefer, taken = container
    left = card_choice.memory_left(question, taken)
    asked = ContainerFit(place, question.request.containers[place], prefer, left)
    given = card_choice.choose_cards(cards, load, asked, question)
    failed = pod_cards.ok & ~given.ok
    pod_cards.codes[failed] = given.codes[failed]
    pod_cards.insufficient |= failed & given.insufficient
    pod_cards.ok &= given.ok
    pod_cards.steps += given.steps
    return given
