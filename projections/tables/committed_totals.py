"""Committed totals: the committed part of every line's used amount.

The state has the used amounts. This module adds up the committed part, from each record's changes
of units. A namespace is recounted only if a record changed the lines that count it.
"""

from collections.abc import Iterable
from typing import Final

from ledger.core.evolve import envelope_charges
from ledger.core.evolve.envelope_charges import ChargeTerm
from ledger.core.model.state import Namespace, Plan, SelectingPlan, State
from projections.record_changes import RecordChange, committed_at


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
        anew = {name for name in _touched_namespaces(change) if self._is_outdated(name, state)}
        for name in anew:
            self._recount(name, state.namespaces[name])
        for (namespace, key), before in change.units.items():
            if namespace in anew:
                continue
            space = state.namespaces[namespace]
            after = committed_at(space, key)
            if before != after:
                counted = self._counted[namespace]
                self._add(counted, space, before, -1)
                self._add(counted, space, after, 1)

    def _is_outdated(self, name: str, state: State) -> bool:
        known, space = self._counted.get(name, _NEVER), state.namespaces[name]
        return known.plan is not space.plan or known.selected is not space.selected

    def _recount(self, name: str, space: Namespace) -> None:
        """Recount a namespace whose lines have changed."""
        for line, amount in self._counted.get(name, _NEVER).amounts.items():
            self.totals[line] -= amount
        counted = self._counted[name] = _Counted(space.plan, space.selected)
        for unit in envelope_charges.units(space):
            self._add(counted, space, envelope_charges.committed_terms(space, unit), 1)

    def _add(
        self, counted: "_Counted", space: Namespace, terms: Iterable[ChargeTerm], sign: int
    ) -> None:
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


def _touched_namespaces(change: RecordChange) -> set[str]:
    """Return the namespaces that a record touched, or that an account covers or covered."""
    names = {namespace for namespace, _ in change.units}
    for name, before in change.accounts.items():
        after = change.state.accounts.get(name)
        if before != after:
            for account in (before, after):
                names.update(account.covers if account is not None else ())
    return names
