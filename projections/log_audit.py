"""Log audit: lists the log event by event, and verifies it from its first record to its last.

Both read the log and need no projection.
"""

from collections.abc import AsyncGenerator, Callable
from datetime import datetime
from typing import Any, Final

import msgspec

from ledger.core import snapshot_format
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
from ledger.log.log_port import Log, Lost, Snapshot
from ledger.log.records import Item, NewerSchema, Record
from ledger.log.recovery.replay import state_at
from projections.queries.moments import Moment, microseconds, rfc3339
from projections.queries.scopes import EVERYTHING, QueryScope
from projections.text.event_text import Description, describe, postings

Progress = Callable[[int, int], None]
"""Called with `(position, last)` while the log is read."""

Line = dict[str, Any]
"""One event, ready to be written as a JSON object."""


class AuditReport(msgspec.Struct, frozen=True):
    """The result of `verify`: the log is intact up to `records` and `position`."""

    ok: bool
    records: int
    position: int
    problem: str | None = None


class ExpectedHead(msgspec.Struct, frozen=True):
    """A head stored elsewhere: the record at `position` must have this hash (hexadecimal)."""

    position: int
    hash: str

    @classmethod
    def parse(cls, text: str) -> "ExpectedHead":
        """Read `POSITION:HASH`. Raises ValueError naming the text."""
        position, colon, digest = text.partition(":")
        if not (
            colon and position.isascii() and position.isdigit() and len(digest) == _HASH_DIGITS
        ):
            raise ValueError(f"{text!r} is not POSITION:HASH with a hash of {_HASH_DIGITS} digits")
        return cls(int(position), digest.lower())


_HASH_DIGITS: Final = 64

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


async def verify(
    log: Log,
    expect: ExpectedHead | None = None,
    *,
    check_snapshots: bool = True,
    on_progress: Progress | None = None,
) -> AuditReport:
    """Replay the whole log and report the first problem, if any.

    Checks that positions have no gap, the hash of every record, the chain and every balance, that
    stored snapshots equal the replayed state, and that `expect` is in the log. Raises Unreachable.
    """
    state = State()
    try:
        await _verify(log, state, expect, check_snapshots, on_progress)
    except (Lost, NewerSchema) as error:
        return AuditReport(False, state.position, state.position, str(error))
    return AuditReport(True, state.position, state.position)


async def _verify(
    log: Log,
    state: State,
    expect: ExpectedHead | None,
    check_snapshots: bool,
    on_progress: Progress | None,
) -> None:
    extent = await log.extent()
    if extent.last and extent.first != 1:
        raise Lost(f"the log begins at position {extent.first}: the records before are missing")
    stored = list(await log.load_snapshots()) if check_snapshots else []
    _compare(state, stored, expect)
    if extent.last:
        async for batch in log.read(1, extent.last):
            for entry in batch:
                records.fold(state, entry.position, entry.payload)
                _compare(state, stored, expect)
            if on_progress is not None:
                on_progress(state.position, extent.last)
    if state.position != extent.last:
        raise Lost(f"the log ended at position {state.position}, {extent.last} was announced")
    # Last, because an error within the log explains more than a missing end.
    _must_reach(extent.last, stored, expect)


def _must_reach(last: int, stored: list[Snapshot], expect: ExpectedHead | None) -> None:
    """Raise Lost when the log ends before a position that a snapshot or a witness has."""
    if expect is not None and expect.position > last:
        raise Lost(
            f"the log ends at position {last}, but position {expect.position} was seen:"
            " its tail is missing"
        )
    for snapshot in stored:
        if snapshot.position > last:
            raise Lost(
                f"the log ends at position {last}, but there is a snapshot of position"
                f" {snapshot.position}: its tail is missing"
            )


def _compare(state: State, stored: list[Snapshot], expect: ExpectedHead | None) -> None:
    """Compare a replayed state with stored snapshots and an expected head. Raises Lost."""
    position = state.position
    if expect is not None and expect.position == position and expect.hash != state.hash.hex():
        raise Lost(
            f"position {position}: the record's hash is {state.hash.hex()}, {expect.hash} was"
            " expected: this is another log, or its history was rewritten"
        )
    for snapshot in stored:
        if snapshot.position == position and snapshot_format.encode(state) != snapshot.payload:
            raise Lost(f"position {position}: the stored snapshot differs from what a replay gives")


def _fold(
    state: State, position: int, payload: bytes, scope: QueryScope
) -> tuple[Record, list[Line]]:
    """Fold one record event by event and describe the events of a scope."""
    record, digest = records.check(state, position, payload)
    lines = []
    for item in record.items:
        records.apply(state, msgspec.structs.replace(record, items=[item]), position)
        told = describe(item.event)
        if scope.includes(told.cluster, told.namespace):
            lines.append(_line(state, record, item, told))
    state.seal(position, digest, record.time)
    return record, lines


def _line(state: State, record: Record, item: Item, told: Description) -> Line:
    account, used_after = _balance(state, item.event)
    return {
        "position": record.position,
        "time": rfc3339(record.time),
        **msgspec.structs.asdict(told),
        "account": account,
        "used_after": used_after,
        "postings": [
            msgspec.structs.asdict(one) for one in postings(item.postings, state.names.__getitem__)
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
        counting = [line for _, line in space.plan[:1]] + [one[1] for one in space.selected[:1]]
        name = state.names[min(counting)][0] if counting else ""
    account = state.accounts.get(name)
    lines = account.lines if account is not None else {}
    return name, {key: state.used[line] for key, line in sorted(lines.items())}
