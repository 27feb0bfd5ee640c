"""Holders: which keys are charged how much. Holds: which attempts are not settled."""

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Final

import msgspec

from ledger.core.amounts import Amounts, largest, minus
from ledger.core.commands import CREATE
from ledger.core.events import OBJECT
from projections.queries.charging import Part, parts
from projections.queries.moments import rfc3339
from projections.queries.scopes import Scope, namespaces
from projections.reading import View

_NOTHING: Final[Amounts] = {}


class Holder(msgspec.Struct, frozen=True):
    """A key and its charge: `amounts` = committed + reserved, per resource.

    `uid` is the committed object's, of the first hold when there is none; `since` is its time.
    """

    cluster: str
    namespace: str
    key: str
    uid: str
    amounts: Amounts
    committed: Amounts
    reserved: Amounts
    holds: int
    since: str


class Hold(msgspec.Struct, frozen=True):
    """An attempt that is not settled: base 0 creates, another is the resourceVersion it updates."""

    cluster: str
    namespace: str
    key: str
    uid: str
    base: int
    amounts: Amounts
    since: str
    owner: str
    actor: str


async def holders(
    view: View, position: int, scope: Scope, *, limit: int, after: str = ""
) -> tuple[list[Holder], str]:
    """Return at most `limit` holders of a scope as of a position, by cluster, namespace and key.

    Returns with them where to go on, `cluster/namespace/key`, empty at the end.
    """
    found: list[Holder] = []
    async with aclosing(_by_key(_parts(view, position, scope, after, OBJECT))) as keys:
        async for one in keys:
            if len(found) == limit:
                return found, _place(found[-1])
            found.append(_holder(one))
    return found, ""


async def holds(
    view: View, position: int, scope: Scope, *, limit: int, after: str = ""
) -> tuple[list[Hold], str]:
    """Return the holds of at most `limit` keys of a scope as of a position, as `holders` does."""
    found: list[Hold] = []
    seen = 0
    async with aclosing(_by_key(_parts(view, position, scope, after, CREATE))) as keys:
        async for one in keys:
            if seen == limit:
                return found, _place(found[-1])
            seen += 1
            found += map(_hold, one)
    return found, ""


async def _by_key(stream: AsyncGenerator[Part, None]) -> AsyncGenerator[list[Part], None]:
    """Yield the parts of each key together."""
    waiting: list[Part] = []
    async with aclosing(stream):
        async for part in stream:
            if waiting and (waiting[0].key, waiting[0].namespace) != (part.key, part.namespace):
                yield waiting
                waiting = []
            waiting.append(part)
    if waiting:
        yield waiting


async def _parts(
    view: View, position: int, scope: Scope, after: str, lowest: int
) -> AsyncGenerator[Part, None]:
    """Yield the parts of every namespace of the scope, after the place `cluster/namespace/key`."""
    cluster, _, rest = after.partition("/")
    name, _, key = rest.partition("/")
    for namespace in await namespaces(view, scope):
        place = (namespace.cluster, namespace.name)
        if place < (cluster, name):
            continue
        start = key if place == (cluster, name) else ""
        async with aclosing(parts(view, position, namespace, after=start, lowest=lowest)) as stream:
            async for part in stream:
                yield part


def _place(row: Holder | Hold) -> str:
    return f"{row.cluster}/{row.namespace}/{row.key}"


def _holder(found: list[Part]) -> Holder:
    charge = committed = _NOTHING
    for part in found:
        charge = largest(charge, part.demand)
        if part.base == OBJECT:
            committed = part.demand
    first = found[0]
    holds_open = sum(part.base != OBJECT for part in found)
    return Holder(
        first.namespace.cluster,
        first.namespace.name,
        first.key,
        first.uid,
        charge,
        committed,
        minus(charge, committed),
        holds_open,
        rfc3339(first.since),
    )


def _hold(part: Part) -> Hold:
    return Hold(
        part.namespace.cluster,
        part.namespace.name,
        part.key,
        part.uid,
        part.base,
        part.demand,
        rfc3339(part.since),
        part.owner,
        part.actor,
    )
