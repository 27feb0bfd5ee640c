"""Event tables: the records and their events."""

import sqlite3
from typing import Final

import msgspec

from ledger.core.model import accounts, events
from ledger.core.model.qualified_names import qualified
from ledger.log.records import Item
from projections.record_changes import KEYED, PLACING, RecordChange
from projections.tables.name_numbers import NameNumbers

_encoder: Final = msgspec.msgpack.Encoder()


NO_NAMESPACE: Final = 0
"""The number of "no single namespace"."""


class HistoryTables:
    """The tables `records` and `events`."""

    def __init__(self, names: NameNumbers) -> None:
        self._names = names
        self._records: list[tuple[int, int, bytes, str, int]] = []
        self._events: list[tuple[int, int, bytes]] = []

    def collect(self, change: RecordChange) -> None:
        """Collect the record, and its events by namespace."""
        record, position = change.record, change.record.position
        self._records.append((position, record.time, change.hash, record.writer, record.group))
        by_namespace: dict[str, list[tuple[int, Item]]] = {}
        for number, item in enumerate(record.items):
            by_namespace.setdefault(namespace_of(item.event), []).append((number, item))
        for namespace, items in by_namespace.items():
            place = self._names.namespace(namespace, position) if namespace else NO_NAMESPACE
            self._events.append((position, place, _encoder.encode(items)))

    def write(self, connection: sqlite3.Connection) -> None:
        """Write the collected records and events."""
        connection.executemany(
            "INSERT INTO records (position, time, hash, writer, commands) VALUES (?, ?, ?, ?, ?)",
            self._records,
        )
        connection.executemany(
            "INSERT INTO events (position, namespace, body) VALUES (?, ?, ?)", self._events
        )
        self._records.clear()
        self._events.clear()


def namespace_of(event: events.AnyEvent) -> str:
    """Return the qualified namespace of an event, empty if it has none."""
    if isinstance(event, KEYED + PLACING):
        return event.namespace
    if isinstance(event, events.ClusterRegistered | events.CardsRegistered | events.NodeRemoved):
        return ""
    if isinstance(event, events.Described):
        return event.subject if "/" in event.subject else ""
    if accounts.kind(event.account) is not accounts.AccountKind.QUOTA:
        return ""
    cluster, namespace, _ = accounts.parts(event.account)
    return qualified(cluster, namespace)
