"""Pods on cards: the pods on each card with their amounts, now or as of a position."""

from typing import Final

import msgspec

from ledger.core.evolve.placement_charges import bookings_of
from ledger.core.model.amounts import Amounts
from ledger.core.model.card_bookings import exclusive_on
from ledger.core.model.cards import Parts, Placement, Stage
from projections.queries.moments import rfc3339
from projections.store.interval_index import forks_around
from projections.store.readers import ProjectionView

STAGES: Final = {
    Stage.PROPOSED: "proposed",
    Stage.BOUND: "bound",
    Stage.ALLOCATED: "allocated",
}
"""Names of the stages of a placement."""


class PodOnCard(msgspec.Struct, frozen=True):
    """A pod on a card: `memory` in MiB, `cores` in percent of a card, `slots` in containers.

    `exclusive`: the card has no other pod. `stage` is the stage of its placement:
    `proposed`, `bound`, `allocated`. `observed`: another scheduler placed it. `since` is when it
    was placed.
    """

    namespace: str
    key: str
    uid: str
    memory: int
    cores: int
    slots: int
    exclusive: bool
    stage: str
    observed: bool
    since: str


PodsByCard = dict[tuple[str, str], list[PodOnCard]]
"""By qualified node and uuid of the card, by namespace and key."""


async def pods_on_cards(view: ProjectionView, position: int, nodes: set[str]) -> PodsByCard:
    """Return the pods on the cards of these qualified nodes as of a position."""
    values = {
        "position": position,
        "nodes": msgspec.json.encode(sorted(nodes)).decode(),
        "forks": msgspec.json.encode(forks_around(position, view.head.position)).decode(),
    }
    statement = _NOW if position == view.head.position else _THEN
    pods: PodsByCard = {}
    async with view.connection.execute(statement, values) as rows:
        async for namespace, key, *row in rows:
            _add(pods, namespace, key, _placement(*row))
    return pods


def _add(pods: PodsByCard, namespace: str, key: str, placed: Placement) -> None:
    """Add a placement to every card that it books."""
    alone = exclusive_on(placed.parts, initialised=placed.initialised)
    for uuid, booking in bookings_of(placed).items():
        resident = PodOnCard(
            namespace,
            key,
            placed.uid,
            *booking,
            uuid in alone,
            STAGES[Stage(placed.stage)],
            placed.observed,
            rfc3339(placed.time),
        )
        pods.setdefault((placed.node, uuid), []).append(resident)


def _placement(uid: str, node: str, parts: bytes, stands: bytes, *rest: int) -> Placement:
    """Return the placement of a row."""
    since, stage, initialised, observed = rest
    bodies = (_parts.decode(parts), _amounts.decode(stands))
    return Placement(uid, node, *bodies, since, stage, bool(initialised), bool(observed))


_parts: Final = msgspec.msgpack.Decoder(Parts)
_amounts: Final = msgspec.msgpack.Decoder(Amounts)

_COLUMNS: Final = """
    namespaces.name AS namespace, key, uid, node, parts, stands, since, stage, initialised, observed
"""
_FROM: Final = "FROM placements JOIN namespaces ON namespaces.number = placements.namespace"
_OF_NODES: Final = (
    "node IN (SELECT value FROM json_each(:nodes)) AND placements.opened <= :position"
)
_STILL_OPEN: Final = f"SELECT {_COLUMNS} {_FROM} WHERE {_OF_NODES} AND closed IS NULL"
_CLOSED_SINCE: Final = f"""
    SELECT {_COLUMNS} {_FROM} WHERE {_OF_NODES} AND closed > :position
    AND fork IN (SELECT value FROM json_each(:forks))
"""
_IN_ORDER: Final = "ORDER BY namespace, key"
_NOW: Final = f"{_STILL_OPEN} {_IN_ORDER}"
_THEN: Final = f"{_STILL_OPEN} UNION ALL {_CLOSED_SINCE} {_IN_ORDER}"
