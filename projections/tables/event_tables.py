"""Event tables: the records, and the numbers of each namespace's events in them."""

import sqlite3
from typing import Final

import msgspec

from ledger.core.model import accounts, events
from ledger.core.model.qualified_names import qualified
from ledger.log import records
from projections.record_changes import KEYED, PLACING, RecordChange
from projections.store.item_bodies import deflate
from projections.store.row_inserts import RowInsert
from projections.tables.name_numbers import NameNumbers

_OF_NAMESPACES: Final = KEYED + PLACING
"""The events that name their namespace."""

_encoder: Final = msgspec.msgpack.Encoder()


class HistoryTables:
    """The tables `records` and `events`."""

    def __init__(self, names: NameNumbers) -> None:
        self._names = names
        self._records: list[tuple[int, int, bytes, str, int, bytes]] = []
        self._events: list[tuple[int, int, bytes | None]] = []

    def collect(self, change: RecordChange) -> None:
        """Collect the record, and the numbers of its events by namespace."""
        record, position = change.record, change.record.position
        body = deflate(records.encoded_items(change.payload))
        row = (position, record.time, change.hash, record.writer, record.group, body)
        self._records.append(row)
        by_namespace: dict[str, list[int]] = {}
        for number, item in enumerate(record.items):
            by_namespace.setdefault(namespace_of(item.event), []).append(number)
        for namespace, numbers in by_namespace.items():
            if namespace:
                place = self._names.namespace(namespace, position)
                packed = None if len(by_namespace) == 1 else _encoder.encode(numbers)
                self._events.append((place, position, packed))

    def write(self, connection: sqlite3.Connection) -> None:
        """Write the collected records and events."""
        _RECORD.write(connection, self._records)
        _EVENT.write(connection, sorted(self._events))
        self._records.clear()
        self._events.clear()


def namespace_of(event: events.AnyEvent) -> str:
    """Return the qualified namespace of an event, empty if it has none."""
    if isinstance(event, _OF_NAMESPACES):
        return event.namespace
    if isinstance(event, events.ClusterRegistered | events.CardsRegistered | events.NodeRemoved):
        return ""
    if isinstance(event, events.Described):
        return event.subject if "/" in event.subject else ""
    if accounts.kind(event.account) is not accounts.AccountKind.QUOTA:
        return ""
    cluster, namespace, _ = accounts.parts(event.account)
    return qualified(cluster, namespace)


_RECORD: Final = RowInsert("records", "position", "time", "hash", "writer", "commands", "body")
_EVENT: Final = RowInsert("events", "namespace", "position", "numbers")
