"""Envelope admission: which part of an envelope is admitted, where the rest was only observed.

An update admits the part that it requests, if there is room. A pod that leaves its root and runs on
takes its charge out of the admitted part of the root.
"""

from msgspec import structs

from ledger.core.evolve.envelope_charges import NOTHING, asked_for, by_line, is_root, terms
from ledger.core.evolve.line_charges import FALLING, Postings, post_lines
from ledger.core.model import events
from ledger.core.model.amounts import Amounts, covers, largest, minus, smallest
from ledger.core.model.state import Entry, Namespace, State, put


def admitted_part(
    entry: Entry, event: events.Committed | events.Observed, held: Amounts, demand: Amounts
) -> Amounts | None:
    """Return the requested part of an observed envelope, None when that is all of it."""
    if not is_root(event.key):
        return None
    asked = asked_for(entry.committed, event.uid, held)
    return None if covers(asked, demand) else smallest(asked, demand)


def admit_requested(state: State, space: Namespace, event: events.Reserved | events.Raised) -> None:
    """Admit the requested part of an envelope that was only observed, if there is room."""
    entry = space.entries[event.key]
    stored = entry.committed
    if stored is None or stored.admitted is None or stored.uid != event.uid:
        return
    counting = by_line(space, terms(space, event.key))
    if event.forced or all(state.used[line] <= state.limit[line] for line in counting):
        asked = largest(stored.admitted, smallest(event.demand, stored.demand))
        _admit(state, space, event.key, entry, asked)


def lower_admitted_for_released_pod(
    state: State, space: Namespace, left: str, charge: Amounts
) -> Postings:
    """Reduce the admitted part of a root by the charge of a pod that left it and runs on.

    The root will create another pod in its place. Otherwise any number of pods, one after the
    other, could run on the admission of one envelope.
    """
    root = space.entries.get(left)
    if root is None or root.committed is None:
        return []
    asked = asked_for(root.committed, root.committed.uid, NOTHING)
    before = by_line(space, terms(space, left))
    _admit(state, space, left, root, minus(asked, smallest(asked, charge)))
    return post_lines(state, before, by_line(space, terms(space, left)), FALLING, set())


def _admit(state: State, space: Namespace, key: str, root: Entry, asked: Amounts) -> None:
    """Set the admitted part of a root's committed envelope."""
    stored = root.committed
    assert stored is not None, "what is only held was asked for"
    admitted = None if covers(asked, stored.demand) else asked
    committed = structs.replace(stored, admitted=admitted)
    put(state, space.entries, key, structs.replace(root, committed=committed))
