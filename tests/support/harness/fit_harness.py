"""Fit harness: arrays from plain cards, and the answers of the extender for the fit oracle."""

import numpy as np
from support.oracles.card_offers import Answer, OneCard, OneNode, Terms

from extender.fit.feasible_nodes import FitQuestion, FitResult, chosen_parts, fit
from extender.fit.node_failure_reasons import reason_of
from extender.fit.node_score_expression import NodeScore
from extender.inventory import card_rows
from extender.inventory.card_arrays import CardArrays
from extender.inventory.card_rows import CardColumn
from extender.inventory.unrecorded_card_use import UsageOverlay
from ledger.core.model.cards import Card
from ledger.kube.requests.device_requests import PodDeviceRequest


def arrays_of(nodes: list[OneNode]) -> CardArrays:
    """Write nodes into arrays, one row each, as the inventory does."""
    arrays = CardArrays(max(1, len(nodes)), max([1, *(len(node.cards) for node in nodes)]))
    for row, node in enumerate(nodes):
        columns = [CardColumn(card.uuid, (0, 0, 0), _card(card)) for card in node.cards]
        used = {
            card.uuid: (card.used_memory, card.used_cores, card.used_slots) for card in node.cards
        }
        card_rows.write(arrays, row, columns, used)
        for column, card in enumerate(node.cards):
            arrays.alone[row, column] = card.alone
            arrays.slices[row, column] = sum(1 << index for index in card.taken)
        if node.pairs:
            card_rows.write_scores(arrays, row, node.pairs)
    return arrays


def asked(
    nodes: list[OneNode],
    request: PodDeviceRequest,
    terms: Terms | None = None,
    order: list[int] | None = None,
    own: NodeScore | None = None,
) -> tuple[FitResult, CardArrays]:
    """Ask about nodes, in the order of their numbers or another."""
    terms, arrays = terms or Terms(), arrays_of(nodes)
    numbers = np.array(range(len(nodes)) if order is None else order, np.int64)
    question = FitQuestion(
        request, numbers, terms.node_policy, terms.card_policies, terms.weights, terms.room, own
    )
    return fit(arrays, UsageOverlay(arrays.rows, arrays.columns), question), arrays


def answers(
    nodes: list[OneNode],
    request: PodDeviceRequest,
    terms: Terms | None = None,
    order: list[int] | None = None,
) -> list[Answer]:
    """Return the extender's answers about nodes."""
    fits, arrays = asked(nodes, request, terms, order)
    return answers_in(fits, arrays, request)


def answers_in(fits: FitResult, arrays: CardArrays, request: PodDeviceRequest) -> list[Answer]:
    """Return the answers of a result about these arrays."""
    return [_answer(fits, place, arrays, request) for place in range(len(fits.rows))]


def _answer(fits: FitResult, place: int, arrays: CardArrays, request: PodDeviceRequest) -> Answer:
    if fits.feasible[place]:
        return Answer(chosen_parts(fits, place, arrays, request), float(fits.score[place]))
    return Answer(None, 0.0, reason_of(fits, place), bool(fits.hopeful[place]))


def _card(card: OneCard) -> Card:
    return Card(
        card.uuid,
        card.index,
        card.type,
        card.memory,
        card.cores,
        card.slots,
        card.vendor,
        card.numa,
        card.mode,
        card.healthy,
        card.cordoned,
        card.profiles,
    )
