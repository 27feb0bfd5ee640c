"""Settlement of cards: nodes, placements and claims of one cluster, while this replica is active.

It has no watch of pods of its own: who settles quotas has one and passes on what it tells.
"""

import asyncio
from collections.abc import Callable
from typing import Protocol

from extender.settling.node_reading import NodeRules
from extender.settling.nodes import Nodes
from extender.settling.registering import Registering
from extender.settling.tenure import CardSettings, CardTenure
from ledger.kube import port
from ledger.kube.objects import Pod
from ledger.kube.port import Change
from ledger.log.courier import Courier
from ledger.log.view import View
from ledger.runtime.counting import Count, uncounted


class CardCluster(port.Nodes, port.Binds, Protocol):
    """A cluster's nodes, to be followed, and what placing writes."""


class CardDuties:
    """What is settled of cards in one tenure."""

    def __init__(self, tenure: CardTenure, nodes: Nodes) -> None:
        """Prepare; `run` does the work."""
        self._registering = Registering(tenure, nodes)

    async def run(self) -> None:
        """Settle until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._registering.run())

    async def take(self, change: Change[Pod]) -> None:
        """Take in what the watch of pods tells, after the ledger was told of it."""


class CardSettlement:
    """Settles the cards of one cluster. `nodes` are followed in every replica, by `run`."""

    def __init__(
        self,
        view: View,
        cluster: CardCluster,
        name: str,
        *,
        now: Callable[[], int],
        settings: CardSettings | None = None,
        rules: NodeRules | None = None,
        count: Count = uncounted,
    ) -> None:
        """`name` is the cluster's in the ledger; `now` tells µs of Unix time."""
        self.nodes = Nodes(cluster, rules or NodeRules())
        self._view, self._cluster, self._name = view, cluster, name
        self._now, self._count = now, count
        self._settings = settings or CardSettings()

    async def run(self) -> None:
        """Follow the nodes until cancelled."""
        await self.nodes.run()

    def begin(self, courier: Courier) -> CardDuties:
        """Begin a tenure, whose commands this courier brings to the ledger."""
        tenure = CardTenure(
            self._view, self._cluster, self._name, self._settings, self._now, courier, self._count
        )
        return CardDuties(tenure, self.nodes)
