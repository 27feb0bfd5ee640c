"""The choice of cards for one container, on all nodes at once.

Cards are chosen one by one. Each choice is made for every node, and the container is added to the
load of the card before the next card is chosen.
"""

from typing import NamedTuple

import msgspec
import numpy as np
from msgspec import structs

from extender.fit import card_and_node_scores, card_filters, mig_instance_choice, topology
from extender.fit.card_and_node_scores import CardCandidates
from extender.fit.card_filters import CardAmounts, Codes, DeviceCriteria
from extender.fit.card_window import CardLoads, CardWindow
from extender.fit.fit_question import NO_BOUND, UNUSED_ONLY, FitQuestion
from extender.fit.node_score_expression import Floats
from extender.inventory.card_arrays import Booleans, Integers
from ledger.kube.requests.device_requests import ContainerDeviceRequests, DeviceRequest


class ChoiceStep(NamedTuple):
    """One card for one container on each node: its column, MiB, percent, and its instance.

    `container` is an index into the pod's request. The values of infeasible nodes are undefined.
    """

    container: int
    exclusive: bool
    columns: Integers
    memory: Integers
    cores: Integers
    instance: Integers


class ContainerCards(msgspec.Struct):
    """The outcome of choosing cards for a container.

    `ok` are the nodes where it succeeded. `codes` are the codes of the other nodes' cards at the
    failure, and elsewhere those at the beginning. `insufficient` are the nodes without enough
    cards. `load` is the use of the cards afterwards, `taken` the MiB of the container, and `cost`
    the policy keys of the chosen cards, lower is better.
    """

    ok: Booleans
    codes: Codes
    insufficient: Booleans
    load: CardLoads
    taken: Integers
    cost: list[Floats]
    steps: list[ChoiceStep]


class ContainerFit(NamedTuple):
    """A container of the pod: its index, its request, and the cards that it prefers.

    `left` is how many MiB quotas leave it on each node, None if no quota bounds that.
    """

    place: int
    request: ContainerDeviceRequests
    prefer: Booleans | None
    left: Integers | None


def choose_cards(
    cards: CardWindow, load: CardLoads, container: ContainerFit, question: FitQuestion
) -> ContainerCards:
    """Choose all cards of a container, on one NUMA node if the pod requires that."""
    everywhere = _begin(cards, load)
    _give_all(cards, everywhere, container, question, None)
    if not question.request.numa_bind:
        return everywhere
    return _bound(cards, load, container, question, everywhere)


def memory_left(question: FitQuestion, taken: Integers) -> Integers | None:
    """Return how many MiB quotas leave to a pod that has taken this many; None if unbounded."""
    return None if question.memory_room == NO_BOUND else question.memory_room - taken


def _begin(cards: CardWindow, load: CardLoads) -> ContainerCards:
    rows, _ = cards.shape
    own = structs.replace(
        load, memory=load.memory.copy(), cores=load.cores.copy(), slots=load.slots.copy()
    )
    return ContainerCards(
        np.ones(rows, np.bool_),
        np.zeros(cards.shape, np.int8),
        np.zeros(rows, np.bool_),
        own,
        np.zeros(rows, np.int64),
        [],
        [],
    )


def _bound(
    cards: CardWindow,
    load: CardLoads,
    container: ContainerFit,
    question: FitQuestion,
    everywhere: ContainerCards,
) -> ContainerCards:
    """Choose the cards of the NUMA node with the best ones."""
    numa = cards.arrays.numa[cards.window]
    best = _begin(cards, load)
    best.ok[:] = False
    best.steps, best.cost = everywhere.steps, everywhere.cost
    for number in np.unique(numa[cards.present]):
        candidate = _begin(cards, load)
        _give_all(cards, candidate, container, question, numa == number)
        _keep_better(best, candidate)
    torn = everywhere.ok & ~best.ok
    fitting = everywhere.codes == card_filters.FITS
    best.codes = np.where(torn[:, None] & fitting, np.int8(card_filters.NUMA), everywhere.codes)
    best.insufficient = everywhere.insufficient
    return best


def _keep_better(best: ContainerCards, candidate: ContainerCards) -> None:
    """Replace the best cards of the nodes where the found ones are better or the first."""
    better = candidate.ok & (~best.ok | _lower(candidate.cost, best.cost))
    best.load.take(better, candidate.load)
    best.steps = [
        old._replace(
            columns=np.where(better, new.columns, old.columns),
            memory=np.where(better, new.memory, old.memory),
            cores=np.where(better, new.cores, old.cores),
            instance=np.where(better, new.instance, old.instance),
        )
        for old, new in zip(best.steps, candidate.steps, strict=True)
    ]
    best.cost = [
        np.where(better, new, old) for old, new in zip(best.cost, candidate.cost, strict=True)
    ]
    best.taken = np.where(better, candidate.taken, best.taken)
    best.ok |= candidate.ok


def _lower(left: list[Floats], right: list[Floats]) -> Booleans:
    """Return where the first key that differs is lower on the left."""
    lower, same = np.zeros(1, np.bool_), np.ones(1, np.bool_)
    for key, other in zip(left, right, strict=True):
        lower = lower | (same & (key < other))
        same = same & (key == other)
    return lower


def _give_all(
    cards: CardWindow,
    given: ContainerCards,
    container: ContainerFit,
    question: FitQuestion,
    only: Booleans | None,
) -> None:
    alone = UNUSED_ONLY in question.card_policies
    for request in container.request.cards:
        criteria = card_filters.criteria_of(cards, request, alone=alone)
        given.insufficient |= criteria.too_few & given.ok
        given.ok &= ~criteria.too_few
        if criteria.possible:
            choice = _DeviceChoice(
                cards,
                given,
                container=container,
                question=question,
                request=request,
                criteria=criteria,
            )
            choice.give(only)


class _DeviceChoice:
    """The choice of one vendor's cards for a container."""

    def __init__(
        self,
        cards: CardWindow,
        given: ContainerCards,
        *,
        container: ContainerFit,
        question: FitQuestion,
        request: DeviceRequest,
        criteria: DeviceCriteria,
    ) -> None:
        self.cards, self.given, self.container = cards, given, container
        self.question, self.request, self.criteria = question, request, criteria
        self.picked = np.zeros(cards.shape, np.bool_)
        self.fitting: Booleans | None = None
        self.sets: Integers | None = None

    def give(self, only: Booleans | None) -> None:
        """Choose card after card; once no node is left, the remaining steps are undefined."""
        codes, wanted, keys = self._looked(only)
        if not self.given.steps:
            self.given.codes = codes.copy()
        for number in range(self.request.count):
            if number and not self.given.ok.any():
                self.given.steps += self.given.steps[-1:] * (self.request.count - number)
                return
            if number and (self.cards.any_cut or self.container.left is not None):
                codes, wanted, keys = self._looked(only)
            if number:
                codes[self.picked & (codes != card_filters.ABSENT)] = card_filters.TAKEN
            if number == 0 and self._as_a_set():
                self.sets = self._set(codes == card_filters.FITS, wanted, keys)
            self._pick(number, codes, wanted, keys)

    def _looked(self, only: Booleans | None) -> tuple[Codes, CardAmounts, list[Floats]]:
        """Return codes, amounts and policy keys of each card.

        The keys depend on the cards that fitted at the beginning, so that the keys of unchanged
        cards stay the same.
        """
        load, left = self.given.load, self._left()
        wanted = card_filters.amounts_of(self.cards, load, self.request)
        codes = card_filters.filter_codes(self.cards, load, self.criteria, wanted, left)
        if only is not None:
            codes[~only & (codes == card_filters.FITS)] = card_filters.NUMA
        if self.fitting is None:
            self.fitting = codes == card_filters.FITS
        offer = CardCandidates(self.cards, load, wanted, self.fitting, self.request.count)
        keys = card_and_node_scores.policy_keys(
            offer, self.question.card_policies, self.question.weights
        )
        if self.container.prefer is not None:
            keys = [(~self.container.prefer).astype(np.float64), *keys]
        return codes, wanted, keys

    def _left(self) -> Integers | None:
        left = self.container.left
        return None if left is None else left - self.given.taken

    def _as_a_set(self) -> bool:
        return self.request.count > 1 and "topology-aware" in self.question.card_policies

    def _set(self, fitting: Booleans, wanted: CardAmounts, keys: list[Floats]) -> Integers:
        """Return the columns of the best linked cards."""
        order = np.lexsort([*reversed(keys), ~fitting], axis=-1)
        left = self._left()
        unbounded = np.full(len(fitting), np.iinfo(np.int64).max)
        bounds = self.request.count, unbounded if left is None else left
        return topology.sets(self.cards, fitting, order, wanted.memory, bounds)

    def _pick(self, number: int, codes: Codes, wanted: CardAmounts, keys: list[Floats]) -> None:
        """Choose one card on every node, and add the container to its load."""
        given, fitting = self.given, codes == card_filters.FITS
        columns = _best(fitting, keys)
        if self.sets is not None:
            planned = self.sets[:, number]
            columns = np.where(planned >= 0, planned, columns)
        rows = np.arange(len(columns))
        chosen = given.ok & fitting[rows, columns]
        failed = given.ok & ~chosen
        given.codes[failed] = codes[failed]
        given.ok = chosen
        step = self._step(wanted, rows, columns)
        given.steps.append(step)
        self._put(step, wanted, np.nonzero(chosen)[0])
        if self.question.request.numa_bind:
            self._count_cost([key[rows, columns] for key in keys])

    def _step(self, wanted: CardAmounts, rows: Integers, columns: Integers) -> ChoiceStep:
        shape = self.cards.shape
        instance = np.full(len(rows), mig_instance_choice.NONE)
        if wanted.room is not None:
            instance = wanted.room.number[rows, columns]
        return ChoiceStep(
            self.container.place,
            self.request.exclusive,
            columns,
            np.broadcast_to(wanted.memory, shape)[rows, columns],
            np.broadcast_to(wanted.cores, shape)[rows, columns],
            instance,
        )

    def _put(self, step: ChoiceStep, wanted: CardAmounts, rows: Integers) -> None:
        """Add the container to the loads of the chosen cards of these rows."""
        load, columns = self.given.load, step.columns[rows]
        load.memory[rows, columns] += step.memory[rows]
        load.cores[rows, columns] += step.cores[rows]
        load.slots[rows, columns] += 1
        if self.request.exclusive:
            load.alone = load.alone.copy()
            load.alone[rows, columns] += 1
        if wanted.room is not None:
            load.slices = load.slices.copy()
            load.slices[rows, columns] |= wanted.room.bits[rows, columns]
        self.given.taken[rows] += step.memory[rows]
        if self.cards.any_cut:
            again = self.cards.cut[rows, columns]
            rows, columns = rows[~again], columns[~again]
        self.picked[rows, columns] = True

    def _count_cost(self, cost: list[Floats]) -> None:
        known = self.given.cost
        if not known:
            self.given.cost = cost
        else:
            self.given.cost = [before + more for before, more in zip(known, cost, strict=True)]


def _best(fitting: Booleans, keys: list[Floats]) -> Integers:
    """Return the column of the best card of each row: the lowest keys, and of these the first.

    In a row where no card fits, that column does not fit either.
    """
    left = fitting
    for key in keys:
        # Transposed, because numpy is slow along a short last axis.
        fitting_keys = np.ascontiguousarray(np.where(left, key, np.inf).T)
        lowest = np.minimum.reduce(fitting_keys, axis=0)
        left = left & (key == lowest[:, None])
    column: Integers = left.argmax(axis=1)
    return column
