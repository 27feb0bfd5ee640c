"""Committed totals: the committed part of every line's used amount.

The state has the used amounts. This module adds up the committed part, from each record's changes
of units. A namespace is recounted only if a record changed the lines that count it.
"""

from typing import Final

from ledger.core.evolve import envelope_charges
from ledger.core.model.state import Namespace, Plan, SelectingPlan, State
from projections.record_changes import RecordChange, Terms, committed_at


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
        for (namespace, key), before in change.units.items():
            space = state.namespaces[namespace]
            counted = self._recount_outdated(namespace, space, recounted)
            if namespace in recounted:
                continue
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
        if len(terms) == 1 and not space.selected and not space.asked_only:
            # Most namespaces have lines that count all objects in full.
            demand, amounts = terms[0].amounts, counted.amounts
            for resource, line in space.plan.pairs():
                if resource in demand:
                    change = sign * demand[resource]
                    amounts[line] = amounts.get(line, 0) + change
                    self.totals[line] += change
            return
        for line, amount in envelope_charges.by_line(space, terms).items() if terms else ():
            counted.amounts[line] = counted.amounts.get(line, 0) + sign * amount
            self.totals[line] += sign * amount


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
