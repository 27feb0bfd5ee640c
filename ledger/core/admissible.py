"""Admissible: how much of a refused demand would be admitted, found by trying it.

What a denial advises is tried on the same state by the same rules, so it cannot be wrong about
another quota, an envelope, or what the object is charged already.
"""

from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Final, NamedTuple

from ledger.core import charging
from ledger.core.amounts import Amounts
from ledger.core.commands import Reserve
from ledger.core.state import Draw, Entry, Namespace, State, put, put_line

Lacking = Callable[[Namespace, Amounts], Collection[int]]
"""Returns the numbers of the lines without room for a demand, in a namespace as it is given."""

_NOTHING: Final[Amounts] = {}


class Fits(NamedTuple):
    """What would be admitted: so many like pods, and so much of each resource that is short.

    The amounts are those of the whole object, or of one pod where not even one would be admitted.
    """

    pods: int
    amounts: Amounts


class Admissible(NamedTuple):
    """What would be admitted `now`, and `ever`: on quotas that nothing else uses.

    `never` are the numbers of the lines without room even there.
    """

    now: Fits
    ever: Fits
    never: frozenset[int]


def admissible(
    state: State, space: Namespace, command: Reserve, lacking: Lacking, short: Amounts
) -> Admissible:
    """Return what would be admitted of a command that was refused.

    `short` are guesses for the resources that are short: near them is looked first.
    """
    now = _fits(space, command, lacking, short)
    with _emptied(state, space, command) as alone:
        never = frozenset(lacking(alone, command.demand))
        ever = _fits(alone, command, lacking, short)
    return Admissible(now, ever, never)


def each_of(demand: Amounts, pods: int) -> Amounts:
    """Return what one of so many like pods asks for, nothing when they cannot be alike."""
    if pods < 1 or any(amount % pods for amount in demand.values()):
        return _NOTHING
    return {resource: amount // pods for resource, amount in demand.items()}


def _fits(space: Namespace, command: Reserve, lacking: Lacking, short: Amounts) -> Fits:
    demand, asker = command.demand, command.asker
    each = each_of(demand, asker.pods) if asker.pods > 1 else _NOTHING
    count = 0
    if each:
        count = _most(
            lambda pods: not lacking(space, {name: pods * one for name, one in each.items()}),
            min((short[name] // each[name] for name in short if each.get(name)), default=0),
            asker.pods,
        )
    if count:
        return Fits(count, _NOTHING)
    return Fits(0, _amounts(space, each or demand, lacking, short))


def _amounts(space: Namespace, demand: Amounts, lacking: Lacking, short: Amounts) -> Amounts:
    """Return the most of each short resource: of each one beside what was found before it."""
    found = {name: amount for name, amount in demand.items() if name not in short}
    if lacking(space, found):
        return dict.fromkeys(short, 0)

    def fits(name: str, amount: int) -> bool:
        return not lacking(space, _with(found, {name: amount}))

    for name, guess in short.items():
        found[name] = _most(partial(fits, name), guess, demand.get(name, 0))
    return {name: found[name] for name in short}


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
    """Let the object, with what it draws from, be all that there is for the time of the block."""
    alone = _alone(space, command)
    with state.trying():
        put(state, state.namespaces, command.namespace, alone)
        for line in {line for _, line in space.plan} | {line for _, line, _ in space.selected}:
            put_line(state, state.used, line, 0)
        held = [term for unit in charging.units(alone) for term in charging.terms(alone, unit)]
        for line, amount in charging.by_line(alone, held).items():
            put_line(state, state.used, line, amount)
        yield alone


def _alone(space: Namespace, command: Reserve) -> Namespace:
    """Return a namespace with the object as it is stored, and with the root it draws from."""
    alone = Namespace().covered_by(space.accounts, space.plan, space.selected, space.asked_only)
    root = space.entries.get(command.root)
    if root is not None and not charging.drawn_from(root):
        alone.entries[command.root] = root
    entry = _own(space.entries.get(command.key), command)
    if entry is None:
        return alone
    alone.entries[command.key] = entry
    if command.key in space.placed:
        alone.placed[command.key] = space.placed[command.key]
    drawn = charging.drawn_from(entry)
    if drawn:
        if drawn in space.entries:
            alone.entries[drawn] = space.entries[drawn]
        committed = entry.committed.demand if entry.committed is not None else _NOTHING
        alone.draws[drawn] = Draw(entry.charge, committed)
        alone.members[drawn] = {command.key: None}
    return alone


def _own(entry: Entry | None, command: Reserve) -> Entry | None:
    """Return what of a key's entry is the object's own: other attempts end by themselves."""
    if entry is None:
        return None
    stored = entry.committed
    kept = stored if stored is not None and stored.uid == command.uid else None
    holds = tuple(one for one in entry.holds if (one.uid, one.base) == (command.uid, command.base))
    return charging.entry_of(kept, holds) if kept is not None or holds else None
