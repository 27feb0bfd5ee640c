"""Denial holders: the largest holders of a full line that a denial names.

A denial never names objects of other namespaces: it names those namespaces with their sums at most.
"""

import heapq
from collections.abc import Iterator
from itertools import islice
from operator import attrgetter
from typing import Final

from ledger.core.evolve import envelope_charges
from ledger.core.model import accounts
from ledger.core.model.amounts import Amounts
from ledger.core.model.denials import Holder, Shortage
from ledger.core.model.state import Account, Entry, Namespace, State
from ledger.core.model.traits import matches, numbered

HOLDERS_SHOWN: Final = 3
HOLDERS_SCANNED_MAX: Final = 1_024
"""A denial names the largest holders among this many keys, to stay cheap in a denial storm.

Pods that draw from a root are among the keys, although only their root is a holder."""


def largest_holders(
    state: State, space: Namespace, head: Shortage, *, own_only: bool
) -> tuple[tuple[Holder, ...], int]:
    """Return the largest holders of a line, and how many more there are among the scanned keys.

    A denial does not name objects of other namespaces: it shows the namespace's share at most, and
    with `own_only` nothing.
    """
    resource = accounts.resource_of(head.resource)
    own: list[Holder] = []
    shares: dict[str, int] = {}
    for namespace, key, charge in islice(_holding(state, head.account), HOLDERS_SCANNED_MAX):
        amount = charge.get(resource, 0)
        if not amount:
            continue
        if state.namespaces[namespace] is space:
            own.append(Holder(key, amount, _since(space.entries.get(key))))
        elif not own_only:
            shares[namespace] = shares.get(namespace, 0) + amount
    holding = [*own, *(Holder(name, amount, 0) for name, amount in shares.items())]
    holders = tuple(heapq.nlargest(HOLDERS_SHOWN, holding, key=attrgetter("amount")))
    return holders, len(holding) - len(holders)


def _holding(state: State, name: str) -> Iterator[tuple[str, str, Amounts]]:
    """Yield the units that an account counts: namespace, key and charge."""
    account = state.accounts[name]
    selects = numbered(account.selects, state.labels)
    for namespace, key in islice(_keys(state, account), HOLDERS_SCANNED_MAX):
        space = state.namespaces[namespace]
        entry = space.entries.get(key)
        if entry is not None and envelope_charges.drawn_from(entry):
            continue  # its demand is part of its root's charge
        for term in envelope_charges.terms(space, key):
            if not selects or matches(selects, term.traits):
                yield namespace, key, term.on(asked_only=account.asked_only)


def _keys(state: State, account: Account) -> Iterator[tuple[str, str]]:
    """Yield every key that an account covers; roots first, because they hold the most."""
    for namespace in account.covers:
        space = state.namespaces[namespace]
        for root in space.draws:
            yield namespace, root
        for key in space.entries:
            if key not in space.draws:
                yield namespace, key


def _since(entry: Entry | None) -> int:
    """Return when the entry's charge began; 0 for pods whose root is not known any more."""
    if entry is None:
        return 0
    if entry.committed is not None:
        return entry.committed.time
    return min(hold.time for hold in entry.holds)
