"""Event history: the events of one namespace or of all, in the order of the log."""

import heapq
from typing import Final

import msgspec

from ledger.core.model.amounts import Amounts
from ledger.core.model.traits import Traits
from ledger.log.records import Item
from projections.queries.moments import rfc3339
from projections.queries.query_scope import EVERYTHING, QueryScope, line_names, namespaces
from projections.store.readers import ProjectionView
from projections.text.event_text import Posting, describe, postings


class HistoryEvent(msgspec.Struct, frozen=True):
    """One event: `number` counts from 0 in its record, `position` is the record's.

    The other fields are those of `projections.text.event_text.Description`.
    """

    position: int
    number: int
    time: str
    type: str
    cause: str
    cluster: str
    namespace: str
    key: str
    uid: str
    amounts: Amounts
    actor: str
    root: str
    traits: Traits
    note: str
    postings: list[Posting]


Place = tuple[int, int]
"""Position and number of an event."""

START: Final[Place] = (0, -1)


async def history(
    view: ProjectionView,
    first: int,
    last: int,
    scope: QueryScope,
    *,
    limit: int,
    after: Place = START,
) -> tuple[list[HistoryEvent], Place | None]:
    """Return at most `limit` events from position `first` to `last`, after a place, and the place
    of the next page (None at the end). Events without a single namespace are part of the
    unrestricted history only.
    """
    start = max((first, -1), after)
    if scope == EVERYTHING:
        entries = await _read(view, _ALL, {}, start, last, limit + 1)
    else:
        streams = [
            await _read(view, _ONE, {"namespace": namespace.number}, start, last, limit + 1)
            for namespace in await namespaces(view, scope)
        ]
        entries = list(heapq.merge(*streams, key=lambda event: event[:2]))
    touched = (line for *_, item in entries[:limit] for line in item.postings[::3])
    names = await line_names(view, touched)
    events = [history_event(*entry, names) for entry in entries[:limit]]
    more = len(entries) > limit
    return events, (events[-1].position, events[-1].number) if more else None


_Found = tuple[int, int, int, Item]
"""Position, number, time and event."""


async def _read(
    view: ProjectionView,
    statement: str,
    values: dict[str, int],
    start: Place,
    last: int,
    limit: int,
) -> list[_Found]:
    """Return at least `limit` events after a place, if there are, in order."""
    entries: list[_Found] = []
    values = {**values, "first": start[0], "last": last}
    async with view.connection.execute(statement, values) as rows:
        async for position, time, body, packed in rows:
            if len(entries) >= limit:
                break
            items = _items.decode(body)
            numbers = range(len(items)) if packed is None else _numbers.decode(packed)
            entries += [
                (position, number, time, _item.decode(items[number]))
                for number in numbers
                if (position, number) > start
            ]
    return entries


def history_event(
    position: int, number: int, time: int, item: Item, names: dict[int, tuple[str, str]]
) -> HistoryEvent:
    """Return an event of a record at a position and time; `names` has the lines of its postings."""
    description = msgspec.structs.asdict(describe(item.event))
    touched = postings(item.postings, names.__getitem__)
    return HistoryEvent(
        position=position, number=number, time=rfc3339(time), postings=touched, **description
    )


_items: Final = msgspec.msgpack.Decoder(list[msgspec.Raw])
_item: Final = msgspec.msgpack.Decoder(Item)
_numbers: Final = msgspec.msgpack.Decoder(list[int])

_ALL: Final = """
    SELECT position, time, inflate(body), NULL FROM records
    WHERE position BETWEEN :first AND :last
    ORDER BY position
"""
_ONE: Final = """
    SELECT events.position, records.time, inflate(records.body), numbers
    FROM events CROSS JOIN records ON records.position = events.position
    WHERE namespace = :namespace AND events.position BETWEEN :first AND :last
    ORDER BY events.position
"""
