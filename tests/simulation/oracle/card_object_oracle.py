"""Card object oracle: the pods on each card, from the bound pods and nodes of the API servers."""

from collections.abc import Iterable, Iterator

from simulation.model.apiserver import SimulatedApiServer, counts
from simulation.model.hami_annotations import limits_in
from simulation.oracle.card_event_oracle import Place, PlacedCards, Three

Lines = dict[str, Three]
"""Limits by account of a card."""


def misplaced(
    servers: Iterable[SimulatedApiServer], placed: dict[Place, PlacedCards], seconds: float
) -> Iterator[str]:
    """Yield pods that are not, at virtual `seconds`, where their placements are, or the reverse.

    A pod that our Binding has bound has the cards that were written then, even if its annotations
    differ now; a pod bound by another writer has any, where the ledger has the card at all.
    """
    left = dict(placed)
    for server in servers:
        for (space, name), pod in server.pods.objects.items():
            node, uid = pod.spec.node_name, pod.metadata.uid
            if not node or not counts(pod, seconds):
                continue
            place, here = (f"{server.name}/{space}", f"pods/{name}"), f"{server.name}/{node}"
            held = left.pop(place, None)
            if uid in server.bindings:
                told: tuple[str, ...] = tuple(server.bindings[uid])
            elif held is None and not _is_known(server, node, server.foreign[uid]):
                continue
            else:
                told = tuple(held.uuids()) if held is not None else ()
            expected = uid, here, told
            recorded = (held.uid, held.node, tuple(held.uuids())) if held is not None else None
            if recorded != expected:
                yield f"placements: {place}: the ledger has {recorded}, it is bound as {expected}"
            elif held is not None and held.stage == 0:
                yield f"placements: {place} is bound, and only proposed as the ledger knows"
    for place, held in left.items():
        yield f"placements: {place} has cards of {held.node}, and is bound nowhere"


def limits(servers: Iterable[SimulatedApiServer], placed: dict[Place, PlacedCards]) -> Lines:
    """Return the limits of every card: announced amounts, and 0 for cards that are only held."""
    by_card = {
        f"card/{held.node}/{uuid}": (0, 0, 0) for held in placed.values() for uuid in held.uuids()
    }
    for server in servers:
        for (_, name), node in server.nodes.objects.items():
            for uuid, three in limits_in(node.metadata.annotations or {}).items():
                by_card[f"card/{server.name}/{name}/{uuid}"] = three
    return by_card


def _is_known(server: SimulatedApiServer, node: str, uuids: list[str]) -> bool:
    """Return whether a node announces all these cards."""
    stored = server.nodes.objects.get(("", node))
    told = limits_in(stored.metadata.annotations or {}) if stored is not None else {}
    return all(uuid in told for uuid in uuids)
