"""Simulated nodes: nodes that are not in the ledger, as empty as new nodes.

The cluster autoscaler asks whether a pod would fit on a node that does not exist yet, and sends it
in full. The cards that such a node announces are registered in a temporary state.
"""

from collections.abc import Iterable

from extender.inventory.cluster_inventory import ClusterInventory
from extender.inventory.unrecorded_card_use import UsageOverlay
from extender.scheduler_api.extender_wire import NodeMeta
from ledger.core.decide.decider import decide
from ledger.core.evolve.evolver import evolve
from ledger.core.model.commands import RegisterCards
from ledger.core.model.denials import Denial
from ledger.core.model.state import State
from ledger.kube.hami.node_announcement import read_announcement


def simulated_inventory(cluster: str, nodes: Iterable[NodeMeta]) -> ClusterInventory:
    """Return an inventory of these nodes with the cards that they announce."""
    state = State()
    for node in nodes:
        announced = read_announcement(node.annotations or {})
        if not announced.cards:
            continue
        command = RegisterCards(f"{cluster}/{node.name}", announced.keeper, announced.cards)
        decision = decide(state, command)
        for event in () if isinstance(decision, Denial) else decision:
            evolve(state, event, 0)
    inventory = ClusterInventory(cluster, UsageOverlay())
    inventory.load(state)
    return inventory
