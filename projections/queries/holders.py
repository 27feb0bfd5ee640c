"""Holders: which units are charged how much. Holds: which attempts are not settled."""

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Final

import msgspec

from ledger.core.evolve.charges import PODS
from ledger.core.model.amounts import Amounts, minus
from ledger.core.model.commands import BARRED, CREATE
from projections.queries.as_of import rfc3339
from projections.queries.charge_rows import Part, parts
from projections.queries.scopes import Namespace, Scope, namespaces
from projections.queries.units import Drawn, Held, by_key, draws, entries, is_drawing, unit_of
from projections.store.readers import View

_NOTHING: Final[Amounts] = {}


class Holder(msgspec.Struct, frozen=True):
    """A key and its charge: `amounts` = committed + reserved, per resource.

    A root is charged the larger of its `envelope`, what its spec may run at once, and of what its
    `pods` pods have `drawn` together. `root` is the key of the root that a pod names. `uid` is the
    committed object's, of the first of its `holds` open holds when there is none; `since` is its
    time.
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
    root: str
    envelope: Amounts
    drawn: Amounts
    pods: int


class Hold(msgspec.Struct, frozen=True):
    """An attempt that is not settled: base 0 creates, another is the resourceVersion it updates.

    `root` is the key of the root that it will draw from, empty when there is none.
    """

    cluster: str
    namespace: str
    key: str
    uid: str
    base: int
    amounts: Amounts
    since: str
    owner: str
    actor: str
    root: str


async def holders(
    view: View,
    position: int,
    scope: Scope,
    *,
    limit: int,
    after: str = "",
    pods: bool = False,
    root: str = "",
) -> tuple[list[Holder], str]:
    """Return at most `limit` holders of a scope as of a position, by cluster, namespace and key.

    Their amounts add up to what is used. With `pods`, the pods that draw from a root are listed
    beside it, with `root` only the pods that name this one. Returns with them where to go on,
    `cluster/namespace/key`, empty at the end.
    """
    found: list[Holder] = []
    for namespace, start in await _places(view, scope, after):
        stream = _holders(view, position, namespace, start, pods or bool(root))
        async with aclosing(stream):
            async for one in stream:
                if root and one.root != root:
                    continue
                if len(found) == limit:
                    return found, _place(found[-1])
                found.append(one)
    return found, ""


async def holds(
    view: View, position: int, scope: Scope, *, limit: int, after: str = ""
) -> tuple[list[Hold], str]:
    """Return the holds of at most `limit` keys of a scope as of a position, as `holders` does."""
    found: list[Hold] = []
    seen = 0
    for namespace, start in await _places(view, scope, after):
        stream = by_key(parts(view, position, namespace, after=start, lowest=CREATE))
        async with aclosing(stream):
            async for one in stream:
                if seen == limit:
                    return found, _place(found[-1])
                seen += 1
                found += map(_hold, one)
    return found, ""


async def _holders(
    view: View, position: int, namespace: Namespace, after: str, pods: bool
) -> AsyncGenerator[Holder, None]:
    """Yield the holders of a namespace; with `pods`, also what is charged in its root's unit."""
    drawn = await draws(view, position, namespace)
    async with aclosing(entries(view, position, namespace, after=after)) as stream:
        async for one in stream:
            if pods or not is_drawing(one, drawn):
                yield _holder(one, drawn.get(one.key))


async def _places(view: View, scope: Scope, after: str) -> list[tuple[Namespace, str]]:
    """Return the namespaces of a scope from the place `cluster/namespace/key` on.

    With each comes the key after which to go on in it.
    """
    cluster, _, rest = after.partition("/")
    name, _, key = rest.partition("/")
    return [
        (one, key if (one.cluster, one.name) == (cluster, name) else "")
        for one in await namespaces(view, scope)
        if (one.cluster, one.name) >= (cluster, name)
    ]


def _place(row: Holder | Hold) -> str:
    return f"{row.cluster}/{row.namespace}/{row.key}"


def _holder(one: Held, drawn: Drawn | None) -> Holder:
    unit, is_root = unit_of(one, drawn), not one.key.startswith(PODS)
    return Holder(
        one.namespace.cluster,
        one.namespace.name,
        one.key,
        one.uid,
        unit.charge,
        unit.committed,
        minus(unit.charge, unit.committed),
        one.holds,
        rfc3339(one.since),
        one.root,
        one.charge if is_root else _NOTHING,
        _NOTHING if drawn is None else drawn.charge,
        0 if drawn is None else drawn.pods,
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
        "" if part.root == BARRED else part.root,
    )
