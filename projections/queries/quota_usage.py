"""Quota usage: limit, reserved, committed, used and free of every line, now or as of a position.

Cards are accounts as well, with a separate query: `projections.queries.card_usage`.
"""

from typing import Final

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
        fetched = list(await rows.fetchall())
    numbers = [number for number, *_ in fetched[:limit]]
    keys = await _keys(view, numbers)
    unread = await incomplete(view, position, numbers)
    lines = [
        line
        for number, name, limits, balances in fetched[:limit]
        for line in _lines(
            name, limits or _NO_LINES, balances or _NO_LINES, keys, unread=number in unread
        )
    ]
    return lines, fetched[limit - 1][1] if len(fetched) > limit else ""


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

_BALANCE: Final = f"""
    SELECT number, name, (
        SELECT body FROM limits
        WHERE account = number AND position <= :position ORDER BY position DESC LIMIT 1
    ), (
        SELECT body FROM balances
        WHERE account = number AND position <= :position ORDER BY position DESC LIMIT 1
    )
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
