"""Card reconciler context: the state, cluster, bounds and queue that all card reconcilers share.

It lasts as long as this replica is the active one.
"""

from collections.abc import Callable
from typing import Final

import msgspec

from ledger.core.model.cards import Placement
from ledger.core.model.qualified_names import qualified
from ledger.core.model.state import Entry
from ledger.kube.api.cluster_ports import AllocationApi
from ledger.kube.requests.demand_rules import DemandRules
from ledger.log.command_delivery import CommandQueue
from ledger.log.ledger_port import StateView
from ledger.runtime.counter_protocol import Count, uncounted

SETTLED: Final = "settlement"
"""The actor of commands that follow from objects of the cluster."""


class CardSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Bounds in seconds, and how requests of pods are read.

    `settle_seconds` is how long a placement may be without its Binding: longer than any Binding can
    take. `claim_seconds` is how long a preemption claim keeps cards.
    `unready_seconds` is how long a node may not be ready until its cards are not healthy.
    """

    rules: DemandRules = DemandRules()
    settle_seconds: float = 60.0
    claim_seconds: float = 60.0
    unready_seconds: float = 60.0


class CardReconcilerContext(msgspec.Struct, frozen=True):
    """The state, the cluster, and the queue of commands to the ledger.

    `name` is the cluster's name in the ledger; `now` returns µs of Unix time.
    """

    view: StateView
    cluster: AllocationApi
    name: str
    settings: CardSettings
    now: Callable[[], int]
    commands: CommandQueue
    count: Count = uncounted

    def qualified(self, name: str) -> str:
        """Return the name of a node or namespace in the ledger."""
        return qualified(self.name, name)

    def owns(self, qualified: str) -> bool:
        """Return whether a node or namespace is of this cluster."""
        return qualified.startswith(f"{self.name}/")

    def placement(self, namespace: str, key: str) -> Placement | None:
        """Return the placement of a pod, also one that is no longer on a node."""
        return self.view.state.placement(namespace, key)

    def entry(self, namespace: str, key: str) -> Entry | None:
        """Return the entry of a pod."""
        return self.view.state.entry(namespace, key)
