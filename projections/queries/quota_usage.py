"""Quota usage: limit, reserved, committed, used and free of every line, now or as of a position.

Cards are accounts as well, with a separate query: `projections.queries.card_usage`.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

import msgspec

from ledger.core.model import accounts
from ledger.core.model.accounts import AccountKind
from projections.queries.incomplete_quotas import incomplete
from projections.queries.query_scope import EVERYTHING, QueryScope
from projections.store.readers import ProjectionView


class Usage(msgspec.Struct, frozen=True):
    """One line of a quota; `resource` is the key in the quota, amounts are in its unit.

    `free` is limit - used, below zero when the limit was lowered below the used amount. A quota
    over many namespaces belongs to no single cluster and namespace: both are empty. `incomplete`:
    the quota counts objects with missing labels.
    """

    cluster: str
    namespace: str
    quota: str
    resource: str
    limit: int
    reserved: int
    committed: int
    used: int
    free: int
    incomplete: bool = False

    @property
    def account(self) -> str:
        """The account of the quota."""
        if not self.namespace:
            return accounts.universe(self.quota)
        return accounts.quota(self.cluster, self.namespace, self.quota)


async def usage(
    view: ProjectionView,
    position: int,
    scope: QueryScope,
    *,
    limit: int,
    quota: str = "",
    after: str = "",
) -> tuple[list[Usage], str]:
    """Return the usage of at most `limit` quotas of a scope, by name, as of a position.

    `quota` restricts them to quotas of this name unless it is empty. A namespace's usage includes
    quotas that cover it together with others. Returns with it the account of the next page, empty
    at the end.
    """
    values = {
        "position": position,
        "name": scope.namespace,
        "cluster": scope.cluster,
        "quota": quota,
        "after": after,
        "limit": limit + 1,
    }
    statement = _EVERYTHING if scope == EVERYTHING else _COVERING
    async with view.connection.execute(statement, values) as rows:
        fetched = [_Account(*row) for row in await rows.fetchall()]
    lines = await _usage_of(view, position, fetched[:limit])
    return lines, fetched[limit - 1].name if len(fetched) > limit else ""


async def usage_by_cluster(
    view: ProjectionView, cluster: str, *, shared: bool, limit: int, per_namespace: int
) -> list[Usage]:
    """Return the present usage of the quotas of one cluster, "" for all clusters, by name.

    Only quotas with lines count: at most `limit` of them, and `per_namespace` of one namespace.
    With `shared`, those over many namespaces come first.
    """
    values = {
        "position": view.head.position,
        "limit": limit,
        "per_namespace": per_namespace,
        **_own(cluster),
        "shared": shared,
    }
    async with view.connection.execute(_OWN_BALANCES, values) as rows:
        fetched = [_Account(*row) for row in await rows.fetchall()]
    return await _usage_of(view, view.head.position, fetched)


async def lines_open(view: ProjectionView, cluster: str, *, shared: bool) -> int:
    """Return how many lines the quotas have that `usage_by_cluster` is about."""
    values = {**_own(cluster), "shared": shared}
    async with view.connection.execute(_LINES_OPEN, values) as rows:
        row = await rows.fetchone()
    return int(row[0]) if row is not None else 0


def _own(cluster: str) -> dict[str, str]:
    """Return the range of the names of a cluster's quotas."""
    first = f"{AccountKind.QUOTA}/{cluster}/" if cluster else f"{AccountKind.QUOTA}/"
    return {
        "first": first,
        "end": f"{first[:-1]}{_AFTER_SLASH}",
    }


class _Account(NamedTuple):
    """A fetched quota with its bodies, None for a quota that has no lines yet."""

    number: int
    name: str
    limits: bytes | None
    balances: bytes | None


async def _usage_of(
    view: ProjectionView, position: int, fetched: Sequence[_Account]
) -> list[Usage]:
    numbers = [account.number for account in fetched]
    keys = await _keys(view, numbers)
    unread = await incomplete(view, position, numbers)
    return [
        line
        for account in fetched
        for line in _lines(
            account.name,
            account.limits or _NO_LINES,
            account.balances or _NO_LINES,
            keys,
            unread=account.number in unread,
        )
    ]


async def _keys(view: ProjectionView, account_numbers: list[int]) -> dict[int, str]:
    """Return the quota keys of all lines that these accounts ever had."""
    statement = """
        SELECT number, key FROM lines
        WHERE account IN (SELECT value FROM json_each(?))
    """
    async with view.connection.execute(
        statement, (msgspec.json.encode(account_numbers).decode(),)
    ) as rows:
        return {number: key async for number, key in rows}


def _lines(
    account: str, limits: bytes, balances: bytes, keys: dict[int, str], *, unread: bool
) -> list[Usage]:
    cluster, namespace, name = accounts.parts(account)
    lines, amounts = iter(_bodies.decode(limits)), iter(_bodies.decode(balances))
    return [
        Usage(
            cluster,
            namespace,
            name,
            keys[line],
            limit,
            reserved,
            used - reserved,
            used,
            limit - used,
            unread,
        )
        for line, limit, used, reserved in zip(lines, lines, amounts, amounts, strict=True)
    ]


_bodies: Final = msgspec.msgpack.Decoder(list[int])
_NO_LINES: Final = msgspec.msgpack.encode([])

_BODIES: Final = """
    SELECT number, name, (
        SELECT body FROM limits
        WHERE account = number AND position <= :position ORDER BY position DESC LIMIT 1
    ), (
        SELECT body FROM balances
        WHERE account = number AND position <= :position ORDER BY position DESC LIMIT 1
    )
"""
_BALANCE: Final = f"""{_BODIES}
    FROM accounts WHERE opened <= :position AND name > :after
    AND name NOT GLOB '{AccountKind.CARD}/*'
    AND (:quota = '' OR substr(name, -length(:quota) - 1) = '/' || :quota)
"""
_END: Final = "ORDER BY name LIMIT :limit"
_EVERYTHING: Final = f"{_BALANCE} {_END}"
_COVERING: Final = f"""{_BALANCE}
    AND number IN (
        SELECT account FROM coverages
        WHERE opened <= :position AND (closed IS NULL OR closed > :position)
        AND namespace IN (
            SELECT number FROM namespaces
            WHERE (:name = '' OR name = :name) AND (:cluster = '' OR cluster = :cluster)
        )
    )
    {_END}
"""

_AFTER_SLASH: Final = chr(ord("/") + 1)
_OF_CLUSTER: Final = f"""
    name >= :first AND name < :end
    OR :shared AND name >= '{AccountKind.UNIVERSE}/'
    AND name < '{AccountKind.UNIVERSE}{_AFTER_SLASH}'
"""
# A name without the characters after its last slash is that of the namespace.
_OWN_BALANCES: Final = f"""
    WITH open AS (
        SELECT number, name, name >= '{AccountKind.UNIVERSE}/' AS shared FROM accounts
        WHERE ({_OF_CLUSTER})
        AND EXISTS (SELECT 1 FROM lines WHERE account = accounts.number AND closed IS NULL)
    ), placed AS (
        SELECT number, name, shared, row_number() OVER (
            PARTITION BY CASE shared WHEN 1 THEN name ELSE rtrim(name, replace(name, '/', '')) END
            ORDER BY name
        ) AS place FROM open
    )
    {_BODIES} FROM placed WHERE place <= :per_namespace ORDER BY shared DESC, name LIMIT :limit
"""
_LINES_OPEN: Final = f"""
    SELECT count(*) FROM accounts JOIN lines ON lines.account = accounts.number
    WHERE ({_OF_CLUSTER}) AND closed IS NULL
"""
