"""Placement drift: pods that contradict their placement in the ledger. Pure.

The ledger has the cards of a pod that this extender placed. An annotation with other cards is
drift, and so is a pod on another node, whose cards are given back. Annotations with other amounts
of the same cards are outdated.
"""

from collections.abc import Sequence

from extender.settlement.card_reconciler_context import SETTLED
from extender.settlement.placed_pod_reader import PodReading
from ledger.core.model.cards import Parts, Placement, Stage
from ledger.core.model.commands import Unplace
from ledger.core.model.events import Cause


def is_placed(placed: Placement | None, uid: str) -> bool:
    """Return whether a placement is on a node, and of the pod of this uid."""
    return placed is not None and placed.uid == uid and bool(placed.node)


def unplace_from_old_node(reading: PodReading, placed: Placement) -> Unplace:
    """Return the command that gives back the cards of a node on which the pod is not."""
    where = reading.namespace, reading.key, reading.uid
    return Unplace(*where, placed.node, Cause.UNBOUND, SETTLED, bound=True)


def annotation_drift(reading: PodReading, placed: Placement) -> str:
    """Return how a pod's annotations contradict its placement; empty if they do not.

    Other amounts are allowed, because the pod may have been resized.
    """
    if reading.problem:
        return reading.problem
    if reading.parts is None:
        return "" if reading.stage < Stage.BOUND else "its annotations name no cards any more"
    named, placed_on = _outline(reading.parts), _outline(placed.parts)
    return (
        ""
        if named == placed_on
        else f"its annotations name {_shown(named)}, it has {_shown(placed_on)}"
    )


def is_outdated(reading: PodReading, placed: Placement) -> bool:
    """Return whether a pod's annotations give it other amounts of its cards than the ledger."""
    return reading.parts is not None and _amounts(reading.parts) != _amounts(placed.parts)


_Outline = list[tuple[str, list[str]]]


def _outline(parts: Parts) -> _Outline:
    """Return the sorted cards of each container that has any."""
    return [
        (part.container, sorted(share.uuid for share in part.shares))
        for part in parts
        if part.shares
    ]


def _amounts(parts: Parts) -> list[tuple[str, list[tuple[str, int, int]]]]:
    """Return the sorted amounts of each container that has cards."""
    return [
        (part.container, sorted((share.uuid, share.memory, share.cores) for share in part.shares))
        for part in parts
        if part.shares
    ]


def _shown(outline: Sequence[tuple[str, list[str]]]) -> str:
    return "; ".join(f"{name}: {', '.join(uuids)}" for name, uuids in outline) or "none"
