"""The tables of clusters, and of the lines, selections and coverages of accounts."""

from typing import Final

import aiosqlite
import msgspec

from ledger.core.model import events
from ledger.core.model.state import Account
from ledger.core.model.traits import Reach, Selection, numbered
from projections.record_changes import RecordChange
from projections.tables.name_numbers import NameNumbers

_NO_ACCOUNT: Final = Account((), {})
_EVERYTHING: Final[tuple[Reach | None, Selection, bool]] = (None, (), False)


class AccountTables:
    """The tables `clusters`, `lines`, `selections` and `coverages`.

    They assign the numbers that other rows use for names.
    """

    def __init__(self, names: NameNumbers) -> None:
        self._names = names
        self._statements: list[tuple[str, tuple[str | int | None, ...]]] = []

    def collect(self, change: RecordChange) -> None:
        """Collect the record's changes of clusters and accounts; most records have none."""
        position = change.record.position
        for item in change.record.items:
            if isinstance(item.event, events.ClusterRegistered):
                self._statements.append((_CLUSTER, (item.event.cluster, item.event.uid, position)))
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
            closed = None if open_now else position
            place = self._names.account(account, position)
            self._statements.append((_OPEN_LINE, (number, place, key, position, closed)))

    def _close_lines(self, before: Account, after: Account, position: int) -> None:
        for number in sorted(set(before.lines.values()) - set(after.lines.values())):
            self._statements.append((_CLOSE_LINE, (position, number)))

    def _select(self, change: RecordChange, name: str, before: Account, after: Account) -> None:
        """Collect the selection of an account, unless it counts all objects of its namespaces."""
        old = (before.reach, before.selects, before.asked_only)
        new = (after.reach, after.selects, after.asked_only)
        position = change.record.position
        if old == new and not _is_numbered(change, after):
            return
        account = self._names.account(name, position)
        if old != _EVERYTHING:
            self._statements.append((_CLOSE_SELECTION, (position, account)))
        if new != _EVERYTHING:
            counted = numbered(after.selects, change.state.labels)
            reach, selects = (
                msgspec.json.encode(selection).decode() for selection in (after.reach, counted)
            )
            values = (account, reach, selects, after.asked_only, position)
            self._statements.append((_OPEN_SELECTION, values))

    def _cover(self, name: str, before: Account, after: Account, position: int) -> None:
        account = self._names.account(name, position)
        for gone in sorted(set(before.covers) - set(after.covers)):
            namespace = self._names.namespace(gone, position)
            self._statements.append((_UNCOVER, (position, account, namespace)))
        for new in sorted(set(after.covers) - set(before.covers)):
            namespace = self._names.namespace(new, position)
            self._statements.append((_COVER, (account, namespace, position)))

    async def write(self, connection: aiosqlite.Connection) -> None:
        """Write the collected statements in the order of the log."""
        for statement, values in self._statements:
            await connection.execute(statement, values)
        self._statements.clear()


def _is_numbered(change: RecordChange, account: Account) -> bool:
    """Return whether a record gives a number to a label that the account selects by."""
    new = {
        key
        for item in change.record.items
        if isinstance(item.event, events.LimitSet)
        for key, _ in item.event.labels
    }
    return any(condition.key in new for condition in account.selects)


_CLUSTER = "INSERT INTO clusters (name, uid, opened) VALUES (?, ?, ?)"
_OPEN_LINE = "INSERT INTO lines (number, account, key, opened, closed) VALUES (?, ?, ?, ?, ?)"
_CLOSE_LINE = "UPDATE lines SET closed = ? WHERE number = ? AND closed IS NULL"
_OPEN_SELECTION = """
INSERT INTO selections (account, reach, selects, asked_only, opened) VALUES (?, ?, ?, ?, ?)
"""
_CLOSE_SELECTION = "UPDATE selections SET closed = ? WHERE account = ? AND closed IS NULL"
_COVER = "INSERT INTO coverages (account, namespace, opened) VALUES (?, ?, ?)"
_UNCOVER = "UPDATE coverages SET closed = ? WHERE account = ? AND namespace = ? AND closed IS NULL"
