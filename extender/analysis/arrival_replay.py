"""Arrival replay: recorded arrivals on recorded or other cards, by the recorded or another choice.

Pods arrive in their order and leave after their real lifetime. A pod without room is refused and
does not come back; there is no queue and no preemption. The same arrivals, cards and choice always
give the same outcome.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Final, NamedTuple

import msgspec
import numpy as np

from extender.analysis.arrivals import Arrival, Fleet, device_request_for
from extender.fit import card_filters
from extender.fit.feasible_nodes import FitResult, chosen_parts, fit
from extender.fit.fit_question import FitQuestion
from extender.fit.inventory_fit import FitPreferences
from extender.inventory.card_arrays import CardArrays
from extender.inventory.card_rows import slices_of
from extender.inventory.cluster_inventory import ClusterInventory
from extender.inventory.unrecorded_card_use import UsageOverlay
from ledger.core.decide.decider import decide
from ledger.core.evolve.evolver import evolve
from ledger.core.model.card_bookings import Booking, booked, exclusive_on
from ledger.core.model.cards import OWN, Parts, Placement
from ledger.core.model.commands import RegisterCards
from ledger.core.model.denials import Denial, Reason
from ledger.core.model.state import State

_CLUSTER: Final = "replayed"
_HOUR: Final = 3_600_000_000
"""In µs."""

Progress = Callable[[int, int], None]
"""Called with how many of all the steps are done."""


class ReplaySeat(NamedTuple):
    """The row of the arrays and the cards that a pod gets."""

    row: int
    parts: Parts


class ReplayUsage(msgspec.Struct, frozen=True):
    """The promised amount of a resource: the peak, the mean, and the limit."""

    peak: int
    mean: float
    limit: int


class ReplayOutcome(msgspec.Struct, frozen=True):
    """The outcome of the arrivals, with the reasons of the `refused` ones.

    `memory` is MiB, `cores` percent, `cards` the used cards. `whole` is the mean number of unused
    usable cards, and `gpu_hours` the sum of the hours for which cards were used.
    """

    nodes: int
    placed: int
    refused: int
    reasons: dict[str, int]
    memory: ReplayUsage
    cores: ReplayUsage
    cards: ReplayUsage
    whole: float
    gpu_hours: float


_MEMORY, _CORES, _CARDS = range(3)


class _Meter:
    """The promised amounts: now, at most, and summed over time in µs."""

    def __init__(self, time: int) -> None:
        self.peak = [0, 0, 0]
        self.total = [0, 0, 0]
        self._now = [0, 0, 0]
        self._time = time

    def move(self, time: int) -> None:
        """Let time pass."""
        for which, now in enumerate(self._now):
            self.total[which] += now * (time - self._time)
        self._time = time

    def add(self, booking: Booking, sign: int, cards: int) -> None:
        """Count what a pod takes of a card, or gives back, and so many cards in use."""
        self._now[_MEMORY] += sign * booking.memory
        self._now[_CORES] += sign * booking.cores
        self._now[_CARDS] += cards
        self.peak = list(map(max, self.peak, self._now))


class Replay:
    """Cards, on which arrivals come and go between two times in µs."""

    def __init__(self, fleet: Fleet, *, begin: int, end: int) -> None:
        """Start with empty cards. Raises ValueError with the name of an invalid node."""
        inventory = _inventory(fleet)
        self.arrays: CardArrays = inventory.arrays
        self.nothing = UsageOverlay(self.arrays.rows, self.arrays.columns)
        self.names = sorted(inventory.rows)
        self.row_of = inventory.rows
        self.rows = np.array([inventory.rows[name] for name in self.names], np.int64)
        self._columns = [
            {uuid: column for column, uuid in enumerate(uuids) if uuid}
            for uuids in self.arrays.uuids
        ]
        self._begin, self._end = begin, end
        self._meter = _Meter(begin)
        self._seats: dict[int, tuple[ReplaySeat, bool]] = {}

    def run(
        self, arrivals: Sequence[Arrival], choose: "ChooseSeat", on_progress: Progress
    ) -> ReplayOutcome:
        """Replay arrivals, each at the seat that `choose` returns."""
        steps = sorted(_steps(arrivals, self._begin, self._end))
        reasons: Counter[str] = Counter()
        for done, (time, kind, which) in enumerate(steps, start=1):
            self._meter.move(time)
            if kind == _COME:
                refused = self._come(which, arrivals[which], choose, time)
                reasons.update([refused] if refused else [])
            elif which in self._seats:
                self._go_on(which, leaves=kind != _SHRINK)
            on_progress(done, len(steps))
        self._meter.move(self._end)
        return self._outcome(len(arrivals) - reasons.total(), reasons)

    def _come(self, which: int, arrival: Arrival, choose: "ChooseSeat", time: int) -> str:
        """Place an arrival; return why it is refused, empty if it is placed."""
        seat = choose(self, arrival)
        if not isinstance(seat, ReplaySeat):
            return seat
        initialised = arrival.initialised <= time
        self._seats[which] = seat, initialised
        self._put(seat, 1, initialised=initialised)
        return ""

    def _go_on(self, which: int, *, leaves: bool) -> None:
        """Remove a pod, or its init containers."""
        seat, initialised = self._seats.pop(which)
        self._put(seat, -1, initialised=initialised)
        if not leaves:
            self._seats[which] = seat, True
            self._put(seat, 1, initialised=True)

    def _put(self, seat: ReplaySeat, sign: int, *, initialised: bool) -> None:
        """Add a pod to the use of its cards, or with sign -1 remove it."""
        arrays, row, columns = self.arrays, seat.row, self._columns[seat.row]
        alone = exclusive_on(seat.parts, initialised=initialised)
        there = [Placement("", "", seat.parts, {}, 0, initialised=initialised)]
        for uuid, booking in booked(seat.parts, initialised=initialised).items():
            column = columns[uuid]
            was_used = bool(arrays.used_slots[row, column])
            arrays.used_memory[row, column] += sign * booking.memory
            arrays.used_cores[row, column] += sign * booking.cores
            arrays.used_slots[row, column] += sign * booking.slots
            arrays.alone[row, column] += sign * (uuid in alone)
            arrays.slices[row, column] ^= np.uint64(slices_of(there, uuid))
            is_used = bool(arrays.used_slots[row, column])
            self._meter.add(booking, sign, int(is_used) - int(was_used))

    def _outcome(self, placed: int, reasons: Counter[str]) -> ReplayOutcome:
        meter, arrays = self._meter, self.arrays
        span = max(1, self._end - self._begin)
        usable = arrays.present & arrays.usable & ~arrays.cordoned
        cards = int(usable.sum())
        limits = int(arrays.memory[usable].sum()), int(arrays.cores[usable].sum()), cards
        memory, cores, busy = (
            ReplayUsage(peak, round(total / span, 2), limit)
            for peak, total, limit in zip(meter.peak, meter.total, limits, strict=True)
        )
        return ReplayOutcome(
            len(self.names),
            placed,
            reasons.total(),
            dict(sorted(reasons.items(), key=lambda item: (-item[1], item[0]))),
            memory,
            cores,
            busy,
            round(cards - meter.total[_CARDS] / span, 2),
            round(meter.total[_CARDS] / _HOUR, 2),
        )


ChooseSeat = Callable[[Replay, Arrival], ReplaySeat | str]
"""Returns the seat of an arrival, or the reason why it is refused."""


def as_recorded(replay: Replay, arrival: Arrival) -> ReplaySeat | str:
    """Put an arrival where it was."""
    row = replay.row_of.get(arrival.node)
    return str(Reason.NODE_UNREGISTERED) if row is None else ReplaySeat(row, arrival.parts)


def by_preferences(preferences: FitPreferences, fleet: Fleet, *, keep_types: bool) -> ChooseSeat:
    """Return the choice of the extender; `fleet` has the cards that arrivals were on."""

    def choose(replay: Replay, arrival: Arrival) -> ReplaySeat | str:
        request = device_request_for(arrival.parts, fleet[arrival.node], keep_types=keep_types)
        question = FitQuestion(
            request,
            replay.rows,
            preferences.node_policy,
            preferences.card_policies,
            preferences.weights,
            node_score=preferences.node_score,
        )
        arrays = replay.arrays
        fits = fit(arrays, replay.nothing, question)
        if not fits.feasible.any():
            return _reason(fits)
        # Of equally good nodes the first by name, as rows are in that order.
        place = int(np.where(fits.feasible, fits.score, -np.inf).argmax())
        return ReplaySeat(int(replay.rows[place]), chosen_parts(fits, place, arrays, request))

    return choose


def _reason(fits: FitResult) -> str:
    """Return the most frequent reason of the cards of all nodes with enough cards."""
    if not fits.registered.any():
        return str(Reason.NODE_UNREGISTERED)
    enough = fits.registered & ~fits.insufficient
    codes = [code for code in fits.codes[enough].ravel().tolist() if code in card_filters.REASONS]
    if not codes:
        return str(Reason.NODE_INSUFFICIENT_DEVICE)
    counted = Counter(codes)
    return str(card_filters.REASONS[max(counted, key=lambda code: (counted[code], code))])


_LEAVE, _COME, _SHRINK, _LEAVE_AT_ONCE = range(4)
"""The kinds of steps, in the order of steps at one time."""


def _steps(arrivals: Sequence[Arrival], begin: int, end: int) -> Iterator[tuple[int, int, int]]:
    """Yield time, kind and the number of the arrival; an earlier arrival comes at the begin."""
    for which, arrival in enumerate(arrivals):
        came = max(arrival.began, begin)
        yield came, _COME, which
        if came < arrival.initialised <= min(end, arrival.ended - 1):
            yield arrival.initialised, _SHRINK, which
        if arrival.ended <= end:
            left = max(arrival.ended, came)
            yield left, _LEAVE if left > came else _LEAVE_AT_ONCE, which


def _inventory(fleet: Fleet) -> ClusterInventory:
    """Return empty cards. Raises ValueError with the name of an invalid node."""
    state = State()
    for name, cards in fleet.items():
        command = RegisterCards(f"{_CLUSTER}/{name}", OWN, tuple(cards.values()))
        decision = decide(state, command)
        if isinstance(decision, Denial):
            raise ValueError(f"node {name}: {decision.message}")
        for event in decision:
            evolve(state, event, 0)
    inventory = ClusterInventory(_CLUSTER, UsageOverlay())
    inventory.load(state)
    return inventory
