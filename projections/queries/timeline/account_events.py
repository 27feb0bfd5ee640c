"""Account events: the events that changed a quota or its usage, newest first, in bounded pages."""

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Final

import msgspec

from ledger.core.model.events import AccountClosed, LimitSet
from ledger.log.records import Item
from projections.queries.event_history import HistoryEvent, Place, history_event
from projections.queries.query_scope import NumberedNamespace, line_names
from projections.queries.timeline.usage_steps import QuotaAccount
from projections.store.readers import ProjectionView

RECORDS_MAX: Final = 200
"""Records that one page examines."""
ITEMS_MAX: Final = 4_000
"""Events of these records that one page examines; the last record is examined as a whole."""
_RECORDS_AT_ONCE: Final = 8
"""Records in memory, because one of them may have a mebibyte."""


async def account_events(
    view: ProjectionView,
    account: QuotaAccount,
    first: int,
    last: int,
    *,
    limit: int,
    before: Place | None = None,
    namespace: NumberedNamespace | None = None,
) -> tuple[list[HistoryEvent], Place | None]:
    """Return at most `limit` events from position `first` to `last` that touch an account.

    They are events with a posting on its lines, or that set or close it; with a `namespace` only
    the events of this namespace. Only events before a place are returned. Returns with them the
    place of the next page, None at the end. A page that examined as much as it may is short.
    """
    start = before or (last + 1, 0)
    lines = await _lines(view, account)
    chosen = list[tuple[int, int, int, Item]]()
    records = examined = earliest = 0
    stream = _records(view, account, (first, last), start, namespace)
    async with aclosing(stream):
        async for position, time, body, packed in stream:
            if records == RECORDS_MAX or examined >= ITEMS_MAX:
                return await _described(view, chosen), (earliest, 0)
            numbered = _numbered(body, packed)
            records, examined, earliest = records + 1, examined + len(numbered), position
            for number, packed_item in reversed(numbered):
                if (position, number) >= start:
                    continue
                item = _item.decode(packed_item)
                if not _touches(item, account, lines):
                    continue
                if len(chosen) == limit:
                    return await _described(view, chosen), (chosen[-1][0], chosen[-1][1])
                chosen.append((position, number, time, item))
    return await _described(view, chosen), None


def _numbered(body: bytes, packed: bytes | None) -> list[tuple[int, msgspec.Raw]]:
    """Return the events of a record with these numbers, with all for None."""
    items = _items.decode(body)
    numbers = range(len(items)) if packed is None else _numbers.decode(packed)
    return [(number, items[number]) for number in numbers]


def _touches(item: Item, account: QuotaAccount, lines: frozenset[int]) -> bool:
    if isinstance(item.event, LimitSet | AccountClosed):
        return item.event.account == account.name
    return not lines.isdisjoint(item.postings[::3])


async def _described(
    view: ProjectionView, chosen: list[tuple[int, int, int, Item]]
) -> list[HistoryEvent]:
    names = await line_names(view, (line for *_, item in chosen for line in item.postings[::3]))
    return [history_event(*entry, names) for entry in chosen]


async def _lines(view: ProjectionView, account: QuotaAccount) -> frozenset[int]:
    """Return the numbers of all lines that an account ever had."""
    statement = "SELECT number FROM lines WHERE account = ?"
    async with view.connection.execute(statement, (account.number,)) as rows:
        return frozenset([number async for (number,) in rows])


async def _records(
    view: ProjectionView,
    account: QuotaAccount,
    stretch: tuple[int, int],
    start: Place,
    namespace: NumberedNamespace | None,
) -> AsyncGenerator[tuple[int, int, bytes, bytes | None], None]:
    """Yield position, time, events and numbers of the newest records that may touch an account."""
    values = {
        "account": account.number,
        "namespace": namespace.number if namespace is not None else 0,
        "first": stretch[0],
        "last": min(stretch[1], start[0] if start[1] else start[0] - 1),
        "limit": RECORDS_MAX + 1,
    }
    statement = _ALL if namespace is None else _OF_NAMESPACE
    async with view.connection.execute(statement, values) as rows:
        while fetched := list(await rows.fetchmany(_RECORDS_AT_ONCE)):
            for position, time, body, packed in fetched:
                yield position, time, body, packed


_items: Final = msgspec.msgpack.Decoder(list[msgspec.Raw])
_item: Final = msgspec.msgpack.Decoder(Item)
_numbers: Final = msgspec.msgpack.Decoder(list[int])

_ALL: Final = """
    SELECT balances.position, time, inflate(records.body), NULL
    FROM balances CROSS JOIN records ON records.position = balances.position
    WHERE account = :account AND balances.position BETWEEN :first AND :last
    ORDER BY balances.position DESC LIMIT :limit
"""
_OF_NAMESPACE: Final = """
    SELECT events.position, time, inflate(records.body), numbers
    FROM events CROSS JOIN records ON records.position = events.position
    WHERE namespace = :namespace AND events.position BETWEEN :first AND :last
    ORDER BY events.position DESC LIMIT :limit
"""
