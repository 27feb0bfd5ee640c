"""Log audit: the events of the log one by one, with the balances after each event.

The audit reads the log and needs no projection.
"""

from collections.abc import AsyncGenerator, Callable
from datetime import datetime
from typing import Any, Final

import msgspec

from ledger.core.model.events import (
    AccountClosed,
    AnyEvent,
    CardsRegistered,
    ClusterRegistered,
    Described,
    LimitSet,
    NodeRemoved,
)
from ledger.core.model.state import State
from ledger.log import records
from ledger.log.log_port import Log
from ledger.log.records import Item, Record
from ledger.log.recovery.replay import state_at
from projections.queries.moments import Moment, microseconds, rfc3339
from projections.queries.query_scope import EVERYTHING, QueryScope
from projections.text.event_text import Description, describe, postings

Progress = Callable[[int, int], None]
"""Called with `(position, last)` while the log is read."""

Line = dict[str, Any]
"""One event, ready to be written as a JSON object."""


TIME_MAX: Final = 2**63
"""Later than any record, in µs."""


async def audit_lines(
    log: Log,
    scope: QueryScope = EVERYTHING,
    *,
    first: Moment | None = None,
    last: Moment | None = None,
    on_progress: Progress | None = None,
) -> AsyncGenerator[Line]:
    """Yield the events of a scope between two moments, both included, with balances after each.

    All balances are verified. Raises Lost, NewerSchema and Unreachable.
    """
    end = (await log.extent()).last
    stop = min(last, end) if isinstance(last, int) else end
    begin = max(first, 1) if isinstance(first, int) else 1
    since = microseconds(first) if isinstance(first, datetime) else 0
    until = microseconds(last) if isinstance(last, datetime) else TIME_MAX
    if begin > stop:
        return
    state = await state_at(log, begin - 1, on_progress=on_progress)
    async for batch in log.read(begin, stop):
        for entry in batch:
            record, lines = _fold(state, entry.position, entry.payload, scope)
            if record.time > until:
                return
            for line in lines if record.time >= since else ():
                yield line
        if on_progress is not None:
            on_progress(state.position, stop)


def _fold(
    state: State, position: int, payload: bytes, scope: QueryScope
) -> tuple[Record, list[Line]]:
    """Fold one record event by event and describe the events of a scope."""
    record, digest = records.check(state, position, payload)
    lines = []
    for item in record.items:
        records.apply(state, msgspec.structs.replace(record, items=[item]), position)
        description = describe(item.event)
        if scope.includes(description.cluster, description.namespace):
            lines.append(_line(state, record, item, description))
    state.seal(position, digest, record.time)
    return record, lines


def _line(state: State, record: Record, item: Item, description: Description) -> Line:
    account, used_after = _balance(state, item.event)
    return {
        "position": record.position,
        "time": rfc3339(record.time),
        **msgspec.structs.asdict(description),
        "account": account,
        "used_after": used_after,
        "postings": [
            msgspec.structs.asdict(posting)
            for posting in postings(item.postings, state.names.__getitem__)
        ],
    }


def _balance(state: State, event: AnyEvent) -> tuple[str, dict[str, int]]:
    """Return the first account of an event, and its used amounts after it.

    Several accounts may cover a namespace. The first account is that of the oldest line; the
    postings have all changes.
    """
    if isinstance(event, ClusterRegistered | Described | CardsRegistered | NodeRemoved):
        return "", {}
    if isinstance(event, LimitSet | AccountClosed):
        name = event.account
    else:
        space = state.namespaces[event.namespace]
        counting = [
            *space.plan.lines[:1],
            *(selected[1] for selected in space.selected[:1]),
        ]
        name = state.names[min(counting)][0] if counting else ""
    account = state.accounts.get(name)
    lines = account.lines if account is not None else {}
    return name, {key: state.used[line] for key, line in sorted(lines.items())}
