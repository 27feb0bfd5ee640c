"""Root holders: the holders of a namespace by root, in pages of bounded cost.

First come roots, each with the pods that draw from it; then roots without an entry of their own,
whose pods are charged one by one; then resource claims; then pods without a root.
"""

from enum import StrEnum
from typing import Final

import msgspec

from ledger.core.model.amounts import Amounts, minus
from projections.queries.charged_units import DrawnAmounts, KeyCharge, is_drawing, unit_of
from projections.queries.query_scope import NumberedNamespace
from projections.queries.tenants.charge_pages import (
    CLAIMS,
    PODS_ALONE,
    ROOTS,
    charge_page,
    pods_of,
)
from projections.store.interval_index import forks_around
from projections.store.readers import ProjectionView
from projections.text.device_text import HeldDevice, held_devices


class HolderKind(StrEnum):
    """The kinds of holders, in the order of their pages."""

    ROOT = "root"
    """An object that is neither a pod nor a resource claim."""
    UNKNOWN_ROOT = "unknown-root"
    """A root without an entry: its pods are charged one by one."""
    RESOURCE_CLAIM = "resource-claim"
    """A resource claim with a charge of its own."""
    POD = "pod"
    """A pod without a root."""


class RootHolder(msgspec.Struct, frozen=True):
    """A holder: `amounts` = committed + reserved. `pods` pods name it as their root.

    `since` is that of the last change of its object, in µs of Unix time, 0 for an unknown root.
    `holds` are its unsettled attempts. `devices` are those that resource claims gave it.
    """

    kind: HolderKind
    key: str
    amounts: Amounts
    committed: Amounts
    reserved: Amounts
    pods: int
    holds: int
    since: int
    devices: tuple[HeldDevice, ...] = ()


async def root_holders(
    view: ProjectionView,
    position: int,
    namespace: NumberedNamespace,
    *,
    limit: int,
    after: str = "",
) -> tuple[list[RootHolder], str]:
    """Return at most `limit` holders as of a position, by kind and key.

    `after` is the place of the page, `KIND:KEY`. Returns with them the place of the next page,
    empty at the end. Raises ValueError for a text that is not a place.
    """
    kind, start = _place(after)
    listed: list[RootHolder] = []
    for stage in list(HolderKind)[list(HolderKind).index(kind) :]:
        rows, more = await _READERS[stage](view, position, namespace, limit - len(listed), start)
        listed += rows
        if more:
            return listed, f"{stage}:{more}"
        if len(listed) == limit and stage is not HolderKind.POD:
            following = list(HolderKind)[list(HolderKind).index(stage) + 1]
            return listed, f"{following}:"
        start = ""
    return listed, ""


async def pods_of_root(
    view: ProjectionView,
    position: int,
    namespace: NumberedNamespace,
    root: str,
    *,
    limit: int,
    after: str = "",
) -> tuple[list[RootHolder], str]:
    """Return at most `limit` pods that name a root as of a position, by key, and the last key
    before the next page, empty at the end.
    """
    held, more = await charge_page(
        view, position, namespace, pods_of(root), limit=limit, after=after
    )
    return [_holder(HolderKind.POD, pod, None) for pod in held], more


def _place(text: str) -> tuple[HolderKind, str]:
    if not text:
        return HolderKind.ROOT, ""
    kind, colon, key = text.partition(":")
    if not colon:
        raise ValueError(f"{text!r} is not KIND:KEY")
    return HolderKind(kind), key


async def _roots(
    view: ProjectionView, position: int, namespace: NumberedNamespace, limit: int, after: str
) -> tuple[list[RootHolder], str]:
    held, more = await charge_page(view, position, namespace, ROOTS, limit=limit, after=after)
    keys = {key for row in held for key in (row.key, row.root) if key}
    drawn = await _draws(view, position, namespace, sorted(keys))
    rows = [
        _holder(HolderKind.ROOT, row, drawn.get(row.key))
        for row in held
        if not is_drawing(row, drawn)
    ]
    return rows, more


async def _unknown_roots(
    view: ProjectionView, position: int, namespace: NumberedNamespace, limit: int, after: str
) -> tuple[list[RootHolder], str]:
    values = {**_moment(view, position, namespace), "after": after, "limit": limit + 1}
    statement = _UNKNOWN_NOW if position == view.head.position else _UNKNOWN_THEN
    async with view.connection.execute(statement, values) as rows:
        fetched = [(root, _drawn(*row)) async for root, *row in rows]
    listed = [_unknown(root, drawn) for root, drawn in fetched[:limit]]
    return listed, listed[-1].key if listed and len(fetched) > limit else ""


async def _resource_claims(
    view: ProjectionView, position: int, namespace: NumberedNamespace, limit: int, after: str
) -> tuple[list[RootHolder], str]:
    held, more = await charge_page(view, position, namespace, CLAIMS, limit=limit, after=after)
    return [_holder(HolderKind.RESOURCE_CLAIM, row, None) for row in held], more


async def _pods(
    view: ProjectionView, position: int, namespace: NumberedNamespace, limit: int, after: str
) -> tuple[list[RootHolder], str]:
    held, more = await charge_page(view, position, namespace, PODS_ALONE, limit=limit, after=after)
    return [_holder(HolderKind.POD, row, None) for row in held], more


_READERS: Final = {
    HolderKind.ROOT: _roots,
    HolderKind.UNKNOWN_ROOT: _unknown_roots,
    HolderKind.RESOURCE_CLAIM: _resource_claims,
    HolderKind.POD: _pods,
}


async def _draws(
    view: ProjectionView, position: int, namespace: NumberedNamespace, roots: list[str]
) -> dict[str, DrawnAmounts]:
    """Return the draws of the pods of these roots at a position."""
    wanted = msgspec.json.encode(roots).decode()
    values = {**_moment(view, position, namespace), "roots": wanted}
    statement = _DRAWS_NOW if position == view.head.position else _DRAWS_THEN
    async with view.connection.execute(statement, values) as rows:
        return {root: _drawn(*row) async for root, *row in rows}


def _moment(
    view: ProjectionView, position: int, namespace: NumberedNamespace
) -> dict[str, int | str]:
    forks = msgspec.json.encode(forks_around(position, view.head.position)).decode()
    return {"position": position, "namespace": namespace.number, "forks": forks}


def _drawn(charge: bytes, committed: bytes, pods: int, live: int) -> DrawnAmounts:
    return DrawnAmounts(_amounts.decode(charge), _amounts.decode(committed), pods, bool(live))


def _holder(kind: HolderKind, held: KeyCharge, drawn: DrawnAmounts | None) -> RootHolder:
    unit = unit_of(held, drawn)
    return RootHolder(
        kind,
        held.key,
        unit.charge,
        unit.committed,
        minus(unit.charge, unit.committed),
        0 if drawn is None else drawn.pods,
        held.holds,
        held.since,
        held_devices(held.devices),
    )


def _unknown(root: str, drawn: DrawnAmounts) -> RootHolder:
    charge, committed = drawn.charge, drawn.committed
    reserved = minus(charge, committed)
    return RootHolder(HolderKind.UNKNOWN_ROOT, root, charge, committed, reserved, drawn.pods, 0, 0)


_amounts: Final = msgspec.msgpack.Decoder(Amounts)

_COLUMNS: Final = "root, charge, committed, pods, live"
_OPEN: Final = f"""
    SELECT {_COLUMNS} FROM draws
    WHERE namespace = :namespace AND closed IS NULL AND opened <= :position
"""
_CLOSED: Final = f"""
    SELECT {_COLUMNS} FROM draws
    WHERE namespace = :namespace AND closed > :position AND opened <= :position
    AND fork IN (SELECT value FROM json_each(:forks))
"""
_OF_ROOTS: Final = "AND root IN (SELECT value FROM json_each(:roots))"
_DRAWS_NOW: Final = f"{_OPEN} {_OF_ROOTS}"
_DRAWS_THEN: Final = f"{_OPEN} {_OF_ROOTS} UNION ALL {_CLOSED} {_OF_ROOTS}"
_UNKNOWN: Final = "AND NOT live AND root > :after"
_BY_ROOT: Final = "ORDER BY root LIMIT :limit"
_UNKNOWN_NOW: Final = f"{_OPEN} {_UNKNOWN} {_BY_ROOT}"
_UNKNOWN_THEN: Final = f"{_OPEN} {_UNKNOWN} UNION ALL {_CLOSED} {_UNKNOWN} {_BY_ROOT}"
