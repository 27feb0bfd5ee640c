"""Quota coverage: which quotas count which namespaces, and the recount when labels change.

An account covers the namespaces that it names, or those that its reach selects by their traits and
by those of their clusters. A namespace without a description has its name and no labels.
"""

from collections.abc import Iterable, Mapping
from functools import lru_cache
from operator import itemgetter

from msgspec import structs

from ledger.core.evolve.envelope_charges import by_line, terms, units
from ledger.core.evolve.line_charges import InvariantError, Postings
from ledger.core.model import accounts
from ledger.core.model.accounts import Line
from ledger.core.model.interning import (
    TRAITS_CHARACTERS_MAX,
    TRAITS_MAX,
    interned_number,
    interned_text,
    interned_traits,
)
from ledger.core.model.qualified_names import split_qualified
from ledger.core.model.state import (
    NOT_THERE,
    Account,
    Namespace,
    Plan,
    SelectingPlan,
    State,
    drop,
    put,
    put_line,
)
from ledger.core.model.traits import NAME, READ, Reach, Selection, is_label, matches, numbered


def open_namespace(state: State, name: str) -> Namespace:
    """Return a namespace, and add an unknown one to all accounts that reach it."""
    space = state.namespaces.get(name)
    if space is None:
        space = Namespace()
        put(state, state.namespaces, name, space)
        if state.reaching:
            reassign(state, [name])
            space = state.namespaces[name]
    return space


def put_account(state: State, name: str, account: Account) -> None:
    """Open or change an account."""
    put(state, state.accounts, name, account)
    if account.reach is None:
        if state.reaching:
            drop(state, state.reaching, name)
    else:
        put(state, state.reaching, name, None)


def drop_account(state: State, name: str) -> None:
    """Close an account."""
    drop(state, state.accounts, name)
    drop(state, state.reaching, name)


def reached(state: State, reach: Reach) -> tuple[str, ...]:
    """Return the known namespaces that a reach selects, sorted."""
    return tuple(sorted(name for name in state.namespaces if _reaches(state, reach, name)))


def reassign(state: State, names: Iterable[str]) -> Postings:
    """Cover these namespaces by the accounts that reach them now, and post the difference."""
    moved: dict[int, int] = {}
    for account in sorted(state.reaching):
        known = state.accounts[account]
        assert known.reach is not None
        covers = set(known.covers)
        changed = [name for name in names if (name in covers) != _reaches(state, known.reach, name)]
        if not changed:
            continue
        _count(state, known, [name for name in changed if name in covers], -1, moved)
        after = covers.symmetric_difference(changed)
        put(state, state.accounts, account, _covering(known, tuple(sorted(after))))
        cover(state, account, changed)
        _count(state, known, [name for name in changed if name in after], 1, moved)
    return _move(state, moved)


def cover(state: State, account: str, names: Iterable[str]) -> None:
    """Update which lines count in these namespaces, after this account changed."""
    changed = state.accounts.get(account)
    covers = frozenset(changed.covers) if changed is not None else frozenset()
    for name in sorted(set(names)):
        space = state.namespaces.get(name)
        if space is None:
            space = open_namespace(state, name) if state.reaching else Namespace()
        ordered = space.accounts
        if (account in ordered) != (name in covers):
            ordered = tuple(sorted({*ordered} ^ {account}))
        covered = space.covered_by(ordered, *plans(state.accounts, ordered, state.labels))
        put(state, state.namespaces, name, covered)


def plans(
    known: dict[str, Account], covering: Iterable[str], labels: Mapping[str, int]
) -> tuple[Plan, SelectingPlan, frozenset[int]]:
    """Return the lines of accounts that count every object, and those that select.

    The third value is the set of line numbers, of either kind, that count only reviewed demand.
    """
    keys, numbers = list[str](), list[int]()
    selecting, asked_only = list[tuple[str, int, Selection]](), set[int]()
    for name in covering:
        account = known[name]
        if account.asked_only:
            asked_only.update(account.lines.values())
        if account.selects:
            selects = numbered(account.selects, labels)
            for key, line in account.lines.items():
                selecting.append((accounts.resource_of(key), line, selects))
        else:
            keys += account.lines
            numbers += account.lines.values()
    ordered = sorted(numbers)
    if ordered != numbers:
        key_of = dict(zip(numbers, keys, strict=True))
        keys = [key_of[line] for line in ordered]
    selecting.sort(key=itemgetter(1))
    return Plan(_resources(tuple(keys)), tuple(ordered)), tuple(selecting), frozenset(asked_only)


def _resources(keys: tuple[str, ...]) -> tuple[str, ...]:
    """Return the resources of keys of quotas as a shared tuple."""
    if sum(map(len, keys)) > TRAITS_CHARACTERS_MAX:
        return tuple(map(accounts.resource_of, keys))
    return _shared_resources(keys)


@lru_cache(maxsize=TRAITS_MAX)
def _shared_resources(keys: tuple[str, ...]) -> tuple[str, ...]:
    return interned_traits(tuple(map(accounts.resource_of, keys)))


def unnumbered(state: State, selection: Selection) -> list[str]:
    """Return the keys of labels that a selection names and that have no number yet, sorted."""
    return sorted(
        {condition.key for condition in selection if is_label(condition.key)} - state.labels.keys()
    )


def number(state: State, labels: Iterable[tuple[str, int]]) -> list[str]:
    """Give keys of labels their numbers; return the accounts that select by any of them."""
    given = dict(labels)
    if not given:
        # Most accounts bring no new label, and a state has many accounts.
        return []
    for key, label_number in given.items():
        put(state, state.labels, key, label_number)
        put(state, state.labels, READ, max(label_number, state.labels.get(READ, 0)))
    return [
        name
        for name, account in state.accounts.items()
        if any(condition.key in given for condition in account.selects)
    ]


def forget_labels(state: State) -> None:
    """Remove the numbers of keys that no account selects by any more.

    No number is given twice, so older records contain nothing about a key that is added again.
    """
    named = {condition.key for account in state.accounts.values() for condition in account.selects}
    for key in state.labels.keys() - named - {READ}:
        drop(state, state.labels, key)


def recount(state: State, covers: Iterable[str], lines: Iterable[int]) -> Postings:
    """Set the used amounts of open lines from the charges that they count in these namespaces."""
    totals = dict.fromkeys(lines, 0)
    for name in covers if totals else ():
        space = state.namespaces[name]
        if not space.entries and not space.draws:
            # Most accounts open before their namespaces hold anything.
            continue
        charged = _in_namespace(space)
        for line in totals.keys() & charged.keys():
            totals[line] += charged[line]
    used = state.used
    return _move(
        state, {line: total - used[line] for line, total in totals.items() if total != used[line]}
    )


def count_again(state: State, account: str) -> Postings:
    """Count the objects of an account again, after keys that it selects by got numbers."""
    known = state.accounts[account]
    cover(state, account, known.covers)
    return recount(state, known.covers, sorted(known.lines.values()))


def set_limits(state: State, lines: Iterable[int], limit: int) -> None:
    """Set the limits of open lines; their used amounts stay."""
    for line in lines:
        put_line(state, state.limit, line, limit)


def close(state: State, lines: Iterable[int]) -> Postings:
    """Close lines: their limits and used amounts become 0."""
    closed = list(lines)
    for line in closed:
        put_line(state, state.limit, line, 0)
    return _move(state, {line: -state.used[line] for line in closed})


def set_lines(state: State, account: str, lines: Iterable[Line]) -> dict[str, int]:
    """Open lines of an account or set their limits; return their numbers by key.

    Raises InvariantError when a number is another line's.
    """
    names, numbers = state.names, dict[str, int]()
    for line in lines:
        number, key, limit = line.number, interned_text(line.key), interned_number(line.limit)
        if number == len(names):
            if state.journal is not None:
                for column in (names, state.used, state.limit):
                    state.journal.append((column, number, NOT_THERE))
            names.append((account, key))
            state.used.append(0)
            state.limit.append(limit)
        elif number > len(names) or names[number] != (account, key):
            raise InvariantError(f"line {number} is not {key} of {account}")
        else:
            put_line(state, state.limit, number, limit)
        numbers[key] = number
    return numbers


def in_order(*several: Postings) -> Postings:
    """Return postings of different lines as one, in order of line numbers."""
    if not any(several):
        return []
    postings = [
        tuple(numbers[at : at + 3]) for numbers in several for at in range(0, len(numbers), 3)
    ]
    return [number for posting in sorted(postings) for number in posting]


def _reaches(state: State, reach: Reach, name: str) -> bool:
    cluster, namespace = split_qualified(name)
    return matches(reach.clusters, (_traits(state, cluster, cluster),)) and matches(
        reach.namespaces, (_traits(state, name, namespace),)
    )


def _traits(state: State, subject: str, name: str) -> str:
    return state.described.get(subject, f"{NAME}={name}")


def _covering(account: Account, covers: tuple[str, ...]) -> Account:
    return structs.replace(account, covers=covers)


def _count(
    state: State, account: Account, covered: Iterable[str], sign: int, moved: dict[int, int]
) -> None:
    """Add the charges that an account counts in namespaces to `moved`."""
    for name in covered:
        charged = _in_namespace(state.namespaces[name])
        for line in account.lines.values():
            moved[line] = moved.get(line, 0) + sign * charged.get(line, 0)


def _in_namespace(space: Namespace) -> dict[int, int]:
    return by_line(space, (term for unit in units(space) for term in terms(space, unit)))


def _move(state: State, moved: dict[int, int]) -> Postings:
    postings: Postings = []
    for line in sorted(moved):
        if moved[line]:
            after = state.used[line] + moved[line]
            put_line(state, state.used, line, after)
            postings += (line, moved[line], after)
    return postings
