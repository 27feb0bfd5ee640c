"""Usage steps: limit and usage of a quota's lines over a stretch of the log, in bounded points.

A stretch with few changes has one point for each. A longer one is read at evenly spaced moments,
because each moment costs the same however long the history is.
"""

from typing import Final

import msgspec

from projections.queries.moments import LAST
from projections.queries.query_scope import NumberedNamespace
from projections.store.readers import ProjectionView


class UsagePoint(msgspec.Struct, frozen=True):
    """A line from a position and its time (µs of Unix time) on, in the unit of its resource."""

    position: int
    time: int
    limit: int
    used: int
    reserved: int


class LineStretch(msgspec.Struct, frozen=True):
    """The points of a line while it was open, and the time (µs of Unix time) at which it closed.

    `was_open`: it was open already at the first moment that was read. `closed` is `LAST` for a line
    that stays open.
    """

    points: list[UsagePoint]
    was_open: bool
    closed: int


class UsageSteps(msgspec.Struct, frozen=True):
    """The points of each line of an account, by quota key, in the order of the log.

    A line without a point at some moment was not open then. `exact`: the points have every change.
    `moments` has the time of each position that was read.
    """

    exact: bool
    lines: dict[str, list[UsagePoint]]
    moments: dict[int, int]

    def stretches(self, key: str) -> list[LineStretch]:
        """Return the stretches in which a line was open, in the order of the log."""
        points = {point.position: point for point in self.lines[key]}
        first, stretches, current = min(self.moments), list[LineStretch](), list[UsagePoint]()
        for position, time in self.moments.items():
            if position in points:
                current.append(points[position])
            elif current:
                stretches.append(LineStretch(current, current[0].position == first, time))
                current = []
        if current:
            stretches.append(LineStretch(current, current[0].position == first, LAST))
        return stretches


class QuotaAccount(msgspec.Struct, frozen=True):
    """An account with its number in rows."""

    number: int
    name: str


async def account_named(view: ProjectionView, position: int, name: str) -> QuotaAccount | None:
    """Return the account of a name, None when the log had not named it by a position."""
    statement = "SELECT number FROM accounts WHERE name = ? AND opened <= ?"
    async with view.connection.execute(statement, (name, position)) as rows:
        row = await rows.fetchone()
    return None if row is None else QuotaAccount(int(row[0]), name)


async def has_covered(
    view: ProjectionView, position: int, account: QuotaAccount, namespace: NumberedNamespace
) -> bool:
    """Return whether an account covered a namespace at a position or before it."""
    statement = """
        SELECT 1 FROM coverages WHERE namespace = ? AND account = ? AND opened <= ? LIMIT 1
    """
    values = (namespace.number, account.number, position)
    async with view.connection.execute(statement, values) as rows:
        return await rows.fetchone() is not None


async def usage_steps(
    view: ProjectionView, account: QuotaAccount, first: int, last: int, *, points: int
) -> UsageSteps:
    """Return at most `points` + 2 points of each line from position `first` to `last`."""
    values = {"account": account.number, "first": first, "last": last, "limit": points + 1}
    async with view.connection.execute(_CHANGES, values) as rows:
        positions = [position async for (position,) in rows]
    exact = len(positions) <= points
    if not exact:
        async with view.connection.execute(_MOMENTS, {**values, "points": points}) as rows:
            positions = [position async for (position,) in rows]
    wanted = sorted({first, last, *positions})
    return await _read(view, account, wanted, exact=exact)


async def _read(
    view: ProjectionView, account: QuotaAccount, positions: list[int], *, exact: bool
) -> UsageSteps:
    keys = await _keys(view, account)
    values = {"account": account.number, "positions": msgspec.json.encode(positions).decode()}
    lines, moments = dict[str, list[UsagePoint]](), dict[int, int]()
    async with view.connection.execute(_BALANCES, values) as rows:
        async for position, time, limits, balances in rows:
            moments[position] = time
            if limits is None or balances is None:
                continue
            numbered, amounts = iter(_bodies.decode(limits)), iter(_bodies.decode(balances))
            for number, limit, used, reserved in zip(
                numbered, numbered, amounts, amounts, strict=True
            ):
                point = UsagePoint(position, time, limit, used, reserved)
                lines.setdefault(keys[number], []).append(point)
    return UsageSteps(exact, lines, moments)


async def _keys(view: ProjectionView, account: QuotaAccount) -> dict[int, str]:
    statement = "SELECT number, key FROM lines WHERE account = ?"
    async with view.connection.execute(statement, (account.number,)) as rows:
        return {number: key async for number, key in rows}


_bodies: Final = msgspec.msgpack.Decoder(list[int])

_CHANGES: Final = """
    SELECT position FROM balances
    WHERE account = :account AND position > :first AND position <= :last
    ORDER BY position LIMIT :limit
"""
"""Each record that changes the limits of an account has a row of its balances, too."""
_MOMENTS: Final = """
    WITH RECURSIVE
        span (began, ended) AS (
            SELECT
                (SELECT time FROM records WHERE position >= :first ORDER BY position LIMIT 1),
                (SELECT time FROM records WHERE position <= :last ORDER BY position DESC LIMIT 1)
        ),
        steps (step) AS (SELECT 1 UNION ALL SELECT step + 1 FROM steps WHERE step < :points)
    SELECT DISTINCT (
        SELECT position FROM records WHERE time <= began + (ended - began) * step / :points
        ORDER BY time DESC, position DESC LIMIT 1
    ) AS moment
    FROM span CROSS JOIN steps WHERE moment BETWEEN :first AND :last
"""
_BALANCES: Final = """
    SELECT value, coalesce((SELECT time FROM records WHERE position = value), 0), (
        SELECT body FROM limits
        WHERE account = :account AND position <= value ORDER BY position DESC LIMIT 1
    ), (
        SELECT body FROM balances
        WHERE account = :account AND position <= value ORDER BY position DESC LIMIT 1
    )
    FROM json_each(:positions)
"""
