"""Usage of universe accounts by namespace.

It is summed up once from all charges, and then kept up to date from the postings of each record,
because summing up all charges for every change takes too long.
"""

from ledger.core.evolve import envelope_charges, line_charges
from ledger.core.model import events
from ledger.core.model.state import State
from ledger.log.ledger_port import StateView
from ledger.log.records import Record
from ledger.tasks.periodic import CooperativeYield

NamespaceUsage = dict[str, dict[int, int]]
"""Amounts by qualified namespace and line number."""


class UsageByNamespace:
    """The usage of the accounts for which it was requested."""

    def __init__(self, view: StateView) -> None:
        self._view = view
        self._shares: dict[str, NamespaceUsage] = {}
        self._complete: set[str] = set()
        self._accounts: dict[int, str] = {}

    async def of(self, account: str) -> NamespaceUsage | None:
        """Return the usage of an open account; None while its namespaces are changing."""
        if account not in self._complete and not await self._sum_up(account):
            return None
        return self._shares.get(account)

    def follow(self, record: Record) -> None:
        """Take note of the postings of a record."""
        for item in record.items:
            event = item.event
            if isinstance(event, events.LimitSet | events.AccountClosed):
                self._forget(event.account)
            elif isinstance(event, events.Described):
                for account in {self._accounts.get(line) for line in item.postings[::3]}:
                    self._forget(account or "")
            elif item.postings and self._accounts:
                self._post(getattr(event, "namespace", ""), item.postings)

    def _post(self, namespace: str, postings: line_charges.Postings) -> None:
        for index in range(0, len(postings), 3):
            account = self._accounts.get(postings[index])
            shares = self._shares.get(account) if account is not None else None
            if shares is None:
                continue
            # The sum of a namespace that is not complete yet will include this posting.
            share = shares.setdefault(namespace, {})
            share[postings[index]] = share.get(postings[index], 0) + postings[index + 1]

    async def _sum_up(self, account: str) -> bool:
        """Sum up the usage of an account; return whether its namespaces stayed the same."""
        known = self._view.state.accounts.get(account)
        if known is None:
            return False
        shares = self._shares[account] = {}
        self._accounts.update(dict.fromkeys(known.lines.values(), account))
        stride, lines = CooperativeYield(), frozenset(known.lines.values())
        for namespace in known.covers:
            await stride.step()
            if self._shares.get(account) is not shares:
                return False
            shares[namespace] = _share(self._view.state, namespace, lines)
        covering = self._view.state.accounts.get(account)
        if covering is None or covering.covers != known.covers:
            self._forget(account)  # a namespace was added meanwhile
            return False
        self._complete.add(account)
        return True

    def _forget(self, account: str) -> None:
        self._complete.discard(account)
        if self._shares.pop(account, None) is not None:
            self._accounts = {
                line: known for line, known in self._accounts.items() if known != account
            }


def _share(state: State, namespace: str, lines: frozenset[int]) -> dict[int, int]:
    space = state.namespaces[namespace]
    terms = (
        term
        for unit in envelope_charges.units(space)
        for term in envelope_charges.terms(space, unit)
    )
    return {
        line: amount
        for line, amount in envelope_charges.by_line(space, terms).items()
        if line in lines
    }
