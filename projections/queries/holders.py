"""Holders: the charge of each key. Holds: the unsettled attempts."""

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Final

import msgspec

from ledger.core.evolve.envelope_charges import is_root
from ledger.core.model.amounts import Amounts, minus
from ledger.core.model.commands import BARRED, CREATE
from projections.queries.charged_units import (
    ChargeRow,
    DrawnAmounts,
    KeyCharge,
    by_key,
    charge_rows,
    draws,
    is_drawing,
    key_charges,
    unit_of,
)
from projections.queries.moments import rfc3339
from projections.queries.query_scope import NumberedNamespace, QueryScope, namespaces
from projections.store.readers import ProjectionView
from projections.text.device_text import HeldDevice, held_devices

_NOTHING: Final[Amounts] = {}


class HolderCharge(msgspec.Struct, frozen=True):
    """A key and its charge: `amounts` = committed + reserved, per resource.

    A root is charged the larger of its `envelope` and of the amounts that its `pods` pods have
    `drawn` together. `root` is the key of the root that a pod names. `uid` and `since` are those of
    the committed object, or of the first of its `holds` open holds if there is no committed object.
    `devices` are those that resource claims gave to a pod, or those of a resource claim.
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
    devices: tuple[HeldDevice, ...] = ()


class OpenHold(msgspec.Struct, frozen=True):
    """An unsettled attempt: base 0 is a creation, another base is the resourceVersion of an update.

    `root` is the key of the root from which it will draw, empty without one.
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
    view: ProjectionView,
    position: int,
    scope: QueryScope,
    *,
    limit: int,
    after: str = "",
    pods: bool = False,
    root: str = "",
) -> tuple[list[HolderCharge], str]:
    """Return at most `limit` holders of a scope as of a position, by cluster, namespace and key.

    Their amounts add up to the used amounts. With `pods`, the pods that draw from a root are
    listed, too; with `root` only the pods of this root. Returns with them the place of the next
    page, `cluster/namespace/key`, empty at the end.
    """
    listed: list[HolderCharge] = []
    for namespace, start in await _places(view, scope, after):
        stream = _holders(view, position, namespace, start, pods or bool(root))
        async with aclosing(stream):
            async for holder in stream:
                if root and holder.root != root:
                    continue
                if len(listed) == limit:
                    return listed, _place(listed[-1])
                listed.append(holder)
    return listed, ""


async def holds(
    view: ProjectionView, position: int, scope: QueryScope, *, limit: int, after: str = ""
) -> tuple[list[OpenHold], str]:
    """Return the holds of at most `limit` keys of a scope as of a position, as `holders` does."""
    listed: list[OpenHold] = []
    seen = 0
    for namespace, start in await _places(view, scope, after):
        stream = by_key(charge_rows(view, position, namespace, after=start, lowest=CREATE))
        async with aclosing(stream):
            async for rows in stream:
                if seen == limit:
                    return listed, _place(listed[-1])
                seen += 1
                listed += map(_hold, rows)
    return listed, ""


async def _holders(
    view: ProjectionView, position: int, namespace: NumberedNamespace, after: str, pods: bool
) -> AsyncGenerator[HolderCharge, None]:
    """Yield the holders of a namespace; with `pods`, also the pods that are charged with their
    root.
    """
    drawn = await draws(view, position, namespace)
    async with aclosing(key_charges(view, position, namespace, after=after)) as stream:
        async for held in stream:
            if pods or not is_drawing(held, drawn):
                yield _holder(held, drawn.get(held.key))


async def _places(
    view: ProjectionView, scope: QueryScope, after: str
) -> list[tuple[NumberedNamespace, str]]:
    """Return the namespaces of a scope from the place `cluster/namespace/key` on, each with the key
    after which its rows begin.
    """
    cluster, _, rest = after.partition("/")
    name, _, key = rest.partition("/")
    return [
        (namespace, key if (namespace.cluster, namespace.name) == (cluster, name) else "")
        for namespace in await namespaces(view, scope)
        if (namespace.cluster, namespace.name) >= (cluster, name)
    ]


def _place(row: HolderCharge | OpenHold) -> str:
    return f"{row.cluster}/{row.namespace}/{row.key}"


def _holder(held: KeyCharge, drawn: DrawnAmounts | None) -> HolderCharge:
    unit = unit_of(held, drawn)
    return HolderCharge(
        held.namespace.cluster,
        held.namespace.name,
        held.key,
        held.uid,
        unit.charge,
        unit.committed,
        minus(unit.charge, unit.committed),
        held.holds,
        rfc3339(held.since),
        held.root,
        held.charge if is_root(held.key) else _NOTHING,
        _NOTHING if drawn is None else drawn.charge,
        0 if drawn is None else drawn.pods,
        held_devices(held.devices),
    )


def _hold(part: ChargeRow) -> OpenHold:
    return OpenHold(
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
