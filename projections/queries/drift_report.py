"""Drift report: corrections of differences between ledger and cluster, newest first."""

from typing import Final

import msgspec

from ledger.core.model.amounts import Amounts
from projections.queries.moments import LAST, rfc3339
from projections.queries.query_scope import EVERYTHING, QueryScope, line_names, namespaces
from projections.store.readers import ProjectionView


class ExceededLine(msgspec.Struct, frozen=True):
    """A line that was over its limit after a correction, in the unit of its `resource`."""

    account: str
    resource: str
    used: int
    limit: int


class Correction(msgspec.Struct, frozen=True):
    """One correction: an `Observed` charges an existing object, a `Released` ends the charge of an
    absent one.

    `number` counts from 0 in the record at `position`. `amounts` are the present demand, or the
    charge before.
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
    over: list[ExceededLine]


Place = tuple[int, int]
"""Position and number of a correction."""


async def drift(
    view: ProjectionView,
    scope: QueryScope,
    *,
    limit: int,
    since: int = 0,
    until: int = LAST,
    before: Place | None = None,
) -> tuple[list[Correction], Place | None]:
    """Return at most `limit` corrections of a scope, newest first.

    They are from `since` to `until`, in µs of Unix time.

    Only corrections before the place `before` are returned. Returns with them the place of the next
    page, None at the end.
    """
    first = before or (view.head.position + 1, 0)
    wanted = [] if scope == EVERYTHING else await namespaces(view, scope)
    values = {
        "all": scope == EVERYTHING,
        "namespaces": msgspec.json.encode([namespace.number for namespace in wanted]).decode(),
        "since": since,
        "until": until,
        "position": first[0],
        "number": first[1],
        "limit": limit + 1,
    }
    async with view.connection.execute(_NEWEST, values) as rows:
        fetched = list(await rows.fetchall())
    names = await line_names(view, (over[0] for row in fetched for over in _overs.decode(row[-1])))
    corrections = [
        Correction(
            position,
            number,
            rfc3339(time),
            kind,
            cause,
            cluster,
            namespace,
            key,
            uid,
            _amounts.decode(amounts),
            [ExceededLine(*names[line], used, most) for line, used, most in _overs.decode(over)],
        )
        for position, number, time, kind, cause, cluster, namespace, key, uid, amounts, over in (
            fetched[:limit]
        )
    ]
    more = len(fetched) > limit
    return corrections, (corrections[-1].position, corrections[-1].number) if more else None


_amounts: Final = msgspec.msgpack.Decoder(Amounts)
_overs: Final = msgspec.msgpack.Decoder(list[tuple[int, int, int]])

_NEWEST: Final = """
    SELECT
        drift.position, drift.number, records.time, type, cause,
        namespaces.cluster, namespaces.name, key, uid, amounts, over
    FROM drift
    CROSS JOIN records ON records.position = drift.position
    CROSS JOIN namespaces ON namespaces.number = drift.namespace
    WHERE (drift.position, drift.number) < (:position, :number)
    AND records.time BETWEEN :since AND :until
    AND (:all OR drift.namespace IN (SELECT value FROM json_each(:namespaces)))
    ORDER BY drift.position DESC, drift.number DESC LIMIT :limit
"""
