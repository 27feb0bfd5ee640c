"""The tables of clusters, and of the lines, selections and coverages of accounts."""

import sqlite3
from typing import Final

import msgspec

from ledger.core.model import events
from ledger.core.model.state import Account
from ledger.core.model.traits import Reach, Selection, numbered
from projections.record_changes import RecordChange
from projections.store.row_inserts import RowInsert
from projections.tables.interval_rows import IntervalRows
from projections.tables.name_numbers import NameNumbers

_NO_ACCOUNT: Final = Account((), {})
_EVERYTHING: Final[tuple[Reach | None, Selection, bool]] = (None, (), False)


class AccountTables:
    """The tables `clusters`, `lines`, `selections` and `coverages`.

    They assign the numbers that other rows use for names.
    """

    def __init__(self, names: NameNumbers) -> None:
        self._names = names
        self._clusters: list[tuple[str, str, int]] = []
        self._lines = IntervalRows(
            "lines", identity=("number",), columns=("number", "account", "key")
        )
        self._selections = IntervalRows(
            "selections",
            identity=("account",),
            columns=("account", "reach", "selects", "asked_only"),
        )
        self._coverages = IntervalRows(
            "coverages", identity=("account", "namespace"), columns=("account", "namespace")
        )

    def collect(self, change: RecordChange) -> None:
        """Collect the record's changes of clusters and accounts; most records have none."""
        position = change.record.position
        for item in change.record.items:
            if isinstance(item.event, events.ClusterRegistered):
                self._clusters.append((item.event.cluster, item.event.uid, position))
        self._open_lines(change, position)
        for name, before in change.accounts.items():
            after = change.state.accounts.get(name, _NO_ACCOUNT)
            self._close_lines(before or _NO_ACCOUNT, after, position)
            self._select(change, name, before or _NO_ACCOUNT, after)
            self._cover(name, before or _NO_ACCOUNT, after, position)

    def _open_lines(self, change: RecordChange, position: int) -> None:
        names = change.state.names
        for number in range(change.lines, len(names)):
            account, key = names[number]
            open_now = change.state.accounts.get(account, _NO_ACCOUNT).lines.get(key) == number
            place = self._names.account(account, position)
            self._lines.open((number,), (number, place, key), position)
            if not open_now:
                self._lines.close((number,), position)

    def _close_lines(self, before: Account, after: Account, position: int) -> None:
        for number in sorted(set(before.lines.values()) - set(after.lines.values())):
            self._lines.close((number,), position)

    def _select(self, change: RecordChange, name: str, before: Account, after: Account) -> None:
        """Collect the selection of an account, unless it counts all objects of its namespaces."""
        old = (before.reach, before.selects, before.asked_only)
        new = (after.reach, after.selects, after.asked_only)
        position = change.record.position
        if old == new and not _is_numbered(change, after):
            return
        account = self._names.account(name, position)
        if old != _EVERYTHING:
            self._selections.close((account,), position)
        if new != _EVERYTHING:
            counted = numbered(after.selects, change.state.labels)
            reach, selects = (
                msgspec.json.encode(selection).decode() for selection in (after.reach, counted)
            )
            values = (account, reach, selects, after.asked_only)
            self._selections.open((account,), values, position)

    def _cover(self, name: str, before: Account, after: Account, position: int) -> None:
        account = self._names.account(name, position)
        for gone in sorted(set(before.covers) - set(after.covers)):
            namespace = self._names.namespace(gone, position)
            self._coverages.close((account, namespace), position)
        for new in sorted(set(after.covers) - set(before.covers)):
            namespace = self._names.namespace(new, position)
            place = (account, namespace)
            self._coverages.open(place, place, position)

    def write(self, connection: sqlite3.Connection) -> None:
        """Write the collected rows. Raises DamagedProjection when a row to close is not open."""
        if self._clusters:
            _CLUSTER.write(connection, self._clusters)
            self._clusters.clear()
        for rows in (self._lines, self._selections, self._coverages):
            rows.write(connection)


def _is_numbered(change: RecordChange, account: Account) -> bool:
    """Return whether a record gives a number to a label that the account selects by."""
    if not account.selects:
        return False
    new = {
        key
        for item in change.record.items
        if isinstance(item.event, events.LimitSet)
        for key, _ in item.event.labels
    }
    return any(condition.key in new for condition in account.selects)


_CLUSTER: Final = RowInsert("clusters", "name", "uid", "opened")
