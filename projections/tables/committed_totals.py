"""Committed totals: the committed part of every line's used amount.

The state has the used amounts. This module adds up the committed part, from each record's changes
of units. A namespace is recounted only if a record changed the lines that count it.
"""

from typing import Final

from ledger.core.evolve import envelope_charges
from ledger.core.evolve.envelope_charges import NOTHING, drawn_from
from ledger.core.model.amounts import Amounts
from ledger.core.model.state import Entry, Namespace, Plan, SelectingPlan, State
from projections.record_changes import (
    QualifiedKey,
    RecordChange,
    Terms,
    committed_at,
    own_committed,
)


class CommittedTotals:
    """The committed amounts of all lines, `totals`, by the lines' numbers."""

    def __init__(self, state: State) -> None:
        self.totals = [0] * len(state.names)
        self._counted: dict[str, _Counted] = {}
        for name, space in state.namespaces.items():
            self._recount(name, space)

    def add(self, change: RecordChange) -> None:
        """Add the changes of a record."""
        state = change.state
        self.totals.extend([0] * (len(state.names) - len(self.totals)))
        recounted = set[str]()
        for name in _covered_namespaces(change) if change.accounts else ():
            self._recount_outdated(name, state.namespaces[name], recounted)
        namespaces, units = state.namespaces, change.units
        for place, entry in change.keys.items():
            if place in units:
                continue
            space = namespaces[place[0]]
            if space.selected or space.asked_only:
                self._replace(space, place, own_committed(entry), recounted)
                continue
            before, after = _demand(entry), _demand(space.entries.get(place[1]))
            # Most changes are those of holds alone.
            if before is not after:
                counted = self._recount_outdated(place[0], space, recounted)
                if place[0] not in recounted:
                    self._add_difference(counted, space.plan, before, after)
        for place, terms in units.items():
            self._replace(namespaces[place[0]], place, terms, recounted)

    def _add_difference(
        self, counted: "_Counted", plan: Plan, before: Amounts, after: Amounts
    ) -> None:
        """Add the difference of two demands to the lines of a plan, which count them in full."""
        totals, amounts = self.totals, counted.amounts
        for resource, line in zip(*plan, strict=True):
            change = after.get(resource, 0) - before.get(resource, 0)
            if change:
                totals[line] += change
                amounts[line] = amounts.get(line, 0) + change

    def _replace(
        self, space: Namespace, place: QualifiedKey, before: Terms, recounted: set[str]
    ) -> None:
        """Replace what a unit was charged for by what it is charged for now."""
        namespace, key = place
        counted = self._recount_outdated(namespace, space, recounted)
        if namespace in recounted:
            return
        after = committed_at(space, key)
        if before != after:
            self._add(counted, space, before, -1)
            self._add(counted, space, after, 1)

    def _recount_outdated(self, name: str, space: Namespace, recounted: set[str]) -> "_Counted":
        """Recount a namespace whose lines have changed, and note its name."""
        known = self._counted.get(name, _NEVER)
        if known.plan is space.plan and known.selected is space.selected:
            return known
        recounted.add(name)
        return self._recount(name, space)

    def _recount(self, name: str, space: Namespace) -> "_Counted":
        for line, amount in self._counted.get(name, _NEVER).amounts.items():
            self.totals[line] -= amount
        counted = self._counted[name] = _Counted(space.plan, space.selected)
        for unit in envelope_charges.units(space):
            self._add(counted, space, tuple(envelope_charges.committed_terms(space, unit)), 1)
        return counted

    def _add(self, counted: "_Counted", space: Namespace, terms: Terms, sign: int) -> None:
        for line, amount in envelope_charges.by_line(space, terms).items() if terms else ():
            counted.amounts[line] = counted.amounts.get(line, 0) + sign * amount
            self.totals[line] += sign * amount


def _demand(entry: Entry | None) -> Amounts:
    """Return the committed demand of a unit that is this entry alone."""
    if entry is None or entry.committed is None or drawn_from(entry):
        return NOTHING
    return entry.committed.demand


class _Counted:
    """The amounts that lines count in a namespace, and the plans that name those lines."""

    __slots__ = ("amounts", "plan", "selected")

    def __init__(self, plan: Plan | None, selected: SelectingPlan | None) -> None:
        self.plan, self.selected = plan, selected
        self.amounts: dict[int, int] = {}


_NEVER: Final = _Counted(None, None)


def _covered_namespaces(change: RecordChange) -> set[str]:
    """Return the namespaces that a changed account covers or covered."""
    names = set[str]()
    for name, before in change.accounts.items():
        after = change.state.accounts.get(name)
        if before != after:
            for account in (before, after):
                names.update(account.covers if account is not None else ())
    return names
