"""Denial advice: how much of a refused demand would be admitted, now and on empty quotas.

The search tries smaller demands on the same state by the same rules. So the remedy of a denial is
right about other quotas, the envelope, and the present charge of the object.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Final, NamedTuple

from ledger.core.evolve import envelope_charges
from ledger.core.model.accounts import resource_of
from ledger.core.model.amounts import Amounts
from ledger.core.model.commands import Reserve
from ledger.core.model.state import Draw, Entry, Namespace, State, put, put_line

Lacking = Callable[[Namespace, Amounts], Mapping[int, int]]
"""Returns the lines without room for a demand in the given namespace, and the amount to release on
each: `{line: amount}`."""

_NOTHING: Final[Amounts] = {}


class AdmissibleDemand(NamedTuple):
    """The part that would be admitted: a number of like pods, or an amount of each short resource.

    The amounts are those of the whole object, or of one pod when not even one would be admitted.
    """

    pods: int
    amounts: Amounts


class Admissible(NamedTuple):
    """The part that would be admitted `now`, and the part on quotas that nothing else uses: `ever`.

    `never` are the numbers of the lines that lack the room even on such quotas.
    """

    now: AdmissibleDemand
    ever: AdmissibleDemand
    never: frozenset[int]


def admissible(
    state: State, space: Namespace, command: Reserve, lacking: Lacking, over: Mapping[int, int]
) -> Admissible:
    """Return the part of a refused command that would be admitted.

    `over` is the amount to release on each line without room. The search starts near these amounts,
    so that a denial takes few tries however large its numbers are.
    """
    resources = list(dict.fromkeys(_resource(state, line) for line in over))
    trying = _Trying(state, command, lacking, resources)
    now = trying.fits(space, over)
    with _emptied(state, space, command) as alone:
        never = lacking(alone, command.demand)
        ever = trying.fits(alone, never)
    return Admissible(now, ever, frozenset(never))


def each_of(demand: Amounts, pods: int) -> Amounts:
    """Return the demand of one of so many like pods, nothing when they cannot be alike."""
    if pods < 1 or any(amount % pods for amount in demand.values()):
        return _NOTHING
    return {resource: amount // pods for resource, amount in demand.items()}


class _Trying(NamedTuple):
    """Tries demands like that of a command; `short` are the resources that are short."""

    state: State
    command: Reserve
    lacking: Lacking
    short: list[str]

    def fits(self, space: Namespace, over: Mapping[int, int]) -> AdmissibleDemand:
        """Return the part of the demand that fits; `over` is the excess on each line.

        Without such a line the whole demand fits.
        """
        demand, pods = self.command.demand, self.command.asker.pods
        each = each_of(demand, pods) if pods > 1 else _NOTHING
        if not over:
            return AdmissibleDemand(
                pods if each else 0, {name: demand.get(name, 0) for name in self.short}
            )
        if not each:
            return AdmissibleDemand(0, self._amounts(space, demand, over))
        count = self._pods(space, each, over)
        if count:
            return AdmissibleDemand(count, _NOTHING)
        return AdmissibleDemand(0, self._amounts(space, each, self.lacking(space, each)))

    def _pods(self, space: Namespace, each: Amounts, over: Mapping[int, int]) -> int:
        """Return how many like pods fit."""
        rooms = self._rooms(self.command.demand, over)
        return _most(
            lambda pods: (
                not self.lacking(space, {name: pods * amount for name, amount in each.items()})
            ),
            min((room // each[name] for name, room in rooms.items() if each.get(name)), default=0),
            self.command.asker.pods,
        )

    def _amounts(self, space: Namespace, demand: Amounts, over: Mapping[int, int]) -> Amounts:
        """Return the most of each short resource, given the amounts found for those before it."""
        amounts = {name: amount for name, amount in demand.items() if name not in self.short}
        if self.lacking(space, amounts):
            return dict.fromkeys(self.short, 0)

        def fits(name: str, amount: int) -> bool:
            return not self.lacking(space, _with(amounts, {name: amount}))

        rooms = self._rooms(demand, over)
        for name in self.short:
            asked = demand.get(name, 0)
            amounts[name] = _most(partial(fits, name), rooms.get(name, asked), asked)
        return {name: amounts[name] for name in self.short}

    def _rooms(self, demand: Amounts, over: Mapping[int, int]) -> Amounts:
        """Return the apparent room for each resource, by the excess on each line."""
        rooms: Amounts = {}
        for line, excess in over.items():
            name = _resource(self.state, line)
            room = max(0, demand.get(name, 0) - excess)
            rooms[name] = min(rooms.get(name, room), room)
        return rooms


def _resource(state: State, line: int) -> str:
    return resource_of(state.names[line][1])


def _with(rest: Amounts, amounts: Amounts) -> Amounts:
    return {name: amount for name, amount in {**rest, **amounts}.items() if amount}


def _most(fits: Callable[[int], bool], guess: int, top: int) -> int:
    """Return the largest number up to `top` that fits, 0 when none does."""
    low, high = 0, top + 1
    for tried in (min(guess, top), min(guess, top) + 1):
        if low < tried < high:
            low, high = (tried, high) if fits(tried) else (low, tried)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low


@contextmanager
def _emptied(state: State, space: Namespace, command: Reserve) -> Iterator[Namespace]:
    """Empty the quotas but for the object and its root, until the end of the block."""
    alone = _alone(space, command)
    with state.trying():
        put(state, state.namespaces, command.namespace, alone)
        for line in {*space.plan.lines} | {line for _, line, _ in space.selected}:
            put_line(state, state.used, line, 0)
        held = [
            term
            for unit in envelope_charges.units(alone)
            for term in envelope_charges.terms(alone, unit)
        ]
        for line, amount in envelope_charges.by_line(alone, held).items():
            put_line(state, state.used, line, amount)
        yield alone


def _alone(space: Namespace, command: Reserve) -> Namespace:
    """Return a namespace with only the object as it is stored, and the root that it draws from."""
    alone = Namespace().covered_by(space.accounts, space.plan, space.selected, space.asked_only)
    root = space.entries.get(command.root)
    if root is not None and not envelope_charges.drawn_from(root):
        alone.entries[command.root] = root
    entry = _own(space.entries.get(command.key), command)
    if entry is None:
        return alone
    alone.entries[command.key] = entry
    if command.key in space.placed:
        alone.placed[command.key] = space.placed[command.key]
    drawn = envelope_charges.drawn_from(entry)
    if drawn:
        if drawn in space.entries:
            alone.entries[drawn] = space.entries[drawn]
        committed = entry.committed.demand if entry.committed is not None else _NOTHING
        alone.draws[drawn] = Draw(entry.charge, committed)
        alone.members[drawn] = {command.key: None}
    return alone


def _own(entry: Entry | None, command: Reserve) -> Entry | None:
    """Return the object's own part of a key's entry: other attempts end by themselves."""
    if entry is None:
        return None
    stored = entry.committed
    kept = stored if stored is not None and stored.uid == command.uid else None
    holds = tuple(
        hold for hold in entry.holds if (hold.uid, hold.base) == (command.uid, command.base)
    )
    return envelope_charges.entry_of(kept, holds) if kept is not None or holds else None
