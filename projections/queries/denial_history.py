"""Denial history: the projected denials, requests, users and reasons, newest first."""

from typing import Final

import msgspec

from ledger.core.model.amounts import Amounts
from ledger.core.model.denials import Denial, sentence
from ledger.core.model.qualified_names import split_qualified
from ledger.log.writer import denial_log
from projections.queries.moments import LAST, rfc3339
from projections.queries.query_scope import QueryScope
from projections.store.readers import ProjectionView

SCANNED_MAX: Final = 5_000
"""Most denials that are read for those of one reason."""

_ROWS_AT_ONCE: Final = 500


class PastDenial(msgspec.Struct, frozen=True):
    """A refused request. `number` orders denials, `position` is that of the decision in the log."""

    number: int
    position: int
    time: str
    cluster: str
    namespace: str
    key: str
    uid: str
    actor: str
    amounts: Amounts
    message: str
    denial: Denial


async def denials(
    view: ProjectionView,
    scope: QueryScope,
    *,
    limit: int,
    since: int = 0,
    until: int = LAST,
    before: int = 0,
    reason: str = "",
) -> tuple[list[PastDenial], int]:
    """Return at most `limit` denials of a scope, newest first.

    They are from `since` to `until`, in µs of Unix time, and for `reason` unless it is empty.

    Only denials with numbers below `before` are returned; 0 starts at the newest. Returns with them
    the `before` of the next page, 0 at the end. A page with a reason reads at most `SCANNED_MAX`
    denials, so it may be empty and have a next one.
    """
    values = {
        "name": scope.namespace,
        "cluster": scope.cluster,
        "since": since,
        "until": until,
        "before": before or _NUMBER_MAX,
        "limit": 1 + (SCANNED_MAX if reason else limit),
    }
    statement = _OF_NAMESPACE if scope.namespace else _OF_ALL
    read, wanted, last = 0, list[tuple[int, bytes]](), 0
    async with view.connection.execute(statement, values) as rows:
        while len(wanted) <= limit and (fetched := list(await rows.fetchmany(_ROWS_AT_ONCE))):
            wanted += [
                (number, body)
                for number, body in fetched
                if not reason or reason_of(body) == reason
            ]
            read, last = read + len(fetched), fetched[-1][0]
    past = [_denied(*row) for row in wanted[:limit]]
    if len(wanted) > limit:
        return past, past[-1].number
    return past, last if reason and read > SCANNED_MAX else 0


class _Reasoned(msgspec.Struct):
    reason: str


class _Refused(msgspec.Struct):
    denial: _Reasoned


_refused: Final = msgspec.msgpack.Decoder(_Refused)


def reason_of(body: bytes) -> str:
    """Return the reason of a stored denial, which takes a tenth of reading all of it."""
    return _refused.decode(body).denial.reason


def _denied(number: int, body: bytes) -> PastDenial:
    refusal = denial_log.decode(body)
    cluster, namespace = split_qualified(refusal.namespace)
    return PastDenial(
        number,
        refusal.position,
        rfc3339(refusal.time),
        cluster,
        namespace,
        refusal.key,
        refusal.uid,
        refusal.actor,
        refusal.demand,
        sentence(refusal.denial),
        refusal.denial,
    )


_NUMBER_MAX: Final = 2**62
"""Greater than the number of any denial."""

_SELECT: Final = "SELECT position, body FROM denials WHERE"
_END: Final = """
    (:cluster = '' OR cluster = :cluster) AND time BETWEEN :since AND :until AND position < :before
    ORDER BY position DESC LIMIT :limit
"""
_OF_ALL: Final = f"{_SELECT} {_END}"
_OF_NAMESPACE: Final = f"{_SELECT} namespace = :name AND {_END}"
"""A statement of its own, because only an equality lets SQLite use the index by namespace."""
