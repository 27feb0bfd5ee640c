"""History: the records and their events, as they were decided."""

from typing import Final

import aiosqlite
import msgspec

from ledger.core import accounts, events
from projections.folding import Change
from projections.tables.names import Names

_encoder: Final = msgspec.msgpack.Encoder()


class History:
    """The tables `records` and `events`."""

    def __init__(self, names: Names) -> None:
        self._names = names
        self._records: list[tuple[int, int, bytes, str, int]] = []
        self._events: list[tuple[int, int, int | None, bytes]] = []

    def take(self, change: Change) -> None:
        """Keep the record and its events."""
        record, position = change.record, change.record.position
        self._records.append((position, record.time, change.hash, record.writer, record.group))
        encode, rows, names = _encoder.encode, self._events, self._names
        for number, item in enumerate(record.items):
            namespace = namespace_of(item.event)
            place = names.namespace(namespace, position) if namespace else None
            rows.append((position, number, place, encode(item)))

    async def write(self, connection: aiosqlite.Connection) -> None:
        """Write the records and events that wait."""
        await connection.executemany(
            "INSERT INTO records (position, time, hash, writer, commands) VALUES (?, ?, ?, ?, ?)",
            self._records,
        )
        await connection.executemany(
            "INSERT INTO events (position, number, namespace, body) VALUES (?, ?, ?, ?)",
            self._events,
        )
        self._records.clear()
        self._events.clear()


def namespace_of(event: events.AnyEvent) -> str:
    """Return the one qualified namespace that an event concerns, empty when there is none."""
    if isinstance(event, events.ClusterRegistered):
        return ""
    if isinstance(event, events.LimitSet | events.AccountClosed):
        if accounts.kind(event.account) is not accounts.Kind.QUOTA:
            return ""
        cluster, namespace, _ = accounts.parts(event.account)
        return accounts.qualified(cluster, namespace)
    return event.namespace
