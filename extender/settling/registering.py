"""Registering: the ledger is told which cards the nodes have, and which nodes are gone.

What a node is to be registered with is compared with what the ledger has, whenever the node says
something and, as long as time alone may change it, every few seconds. So nothing has to be
remembered, and telling twice does no harm.
"""

import asyncio
import math
from contextlib import suppress
from datetime import UTC, datetime
from typing import Final

from extender.settling import node_reading
from extender.settling.nodes import Nodes
from extender.settling.tenure import SETTLED, CardTenure
from ledger.core import cards
from ledger.core.commands import RegisterCards, RemoveNode
from ledger.log.turns import Stride

AGAIN_SECONDS: Final = 0.1
"""Pause before a node is looked at whose last news are still on their way to the ledger."""

LOOK_SECONDS: Final = 5.0
"""How often nodes are looked at of which time alone may change what is thought."""


class Registering:
    """Tells the ledger of one cluster's nodes."""

    def __init__(self, tenure: CardTenure, nodes: Nodes) -> None:
        """Prepare; `run` does the work."""
        self._tenure = tenure
        self._nodes = nodes
        self._due: dict[str, None] = {}
        self._uncertain: set[str] = set()
        self._unready: dict[str, float] = {}
        self._woken = asyncio.Event()

    async def run(self) -> None:
        """Tell until cancelled."""
        await self._nodes.listed.wait()
        with self._nodes.heard_by(self._hear):
            self._due.update(dict.fromkeys(self._everything()))
            while True:
                await self._settle()
                await self._wait()
                self._due.update(dict.fromkeys(self._uncertain))

    def _hear(self, name: str) -> None:
        self._due[name] = None
        self._woken.set()

    def _everything(self) -> list[str]:
        """Return the nodes that there are, and those that the ledger has."""
        prefix = f"{self._tenure.name}/"
        registered = self._tenure.view.state.nodes
        told = [name.removeprefix(prefix) for name in registered if name.startswith(prefix)]
        return [*self._nodes.known, *told]

    async def _wait(self) -> None:
        """Wait until there is something to look at."""
        with suppress(TimeoutError):
            async with asyncio.timeout(AGAIN_SECONDS if self._due else LOOK_SECONDS):
                await self._woken.wait()
        self._woken.clear()

    async def _settle(self) -> None:
        """Look at every node that is due, and of which nothing is on its way to the ledger."""
        stride = Stride()
        for name in list(self._due):
            await stride.step()
            if self._tenure.courier.is_pending("", self._tenure.qualified(name)):
                continue
            del self._due[name]
            command = self._command(name)
            if command is not None:
                await self._tenure.courier.send(command)

    def _command(self, name: str) -> RegisterCards | RemoveNode | None:
        """Return what the ledger is to be told of a node, None when it knows."""
        node = self._tenure.qualified(name)
        registered, reading = self._tenure.view.state.nodes.get(node), self._nodes.known.get(name)
        if reading is None:
            self._unready.pop(name, None)
            self._uncertain.discard(name)
            if registered is None or registered.gone:
                return None
            return RemoveNode(node, SETTLED, self._nodes.version)
        lost = not self._is_reachable(name, reading.ready, registered)
        now = datetime.fromtimestamp(self._tenure.now() / 1e6, UTC)
        wanted = node_reading.cards_of(reading, registered, now, lost=lost)
        self._watch_time(name, uncertain=wanted is not None and reading.is_uncertain())
        if wanted is None or _is_as(registered, wanted):
            return None
        return RegisterCards(node, *wanted, SETTLED, reading.version)

    def _is_reachable(self, name: str, ready: bool, registered: cards.Node | None) -> bool:
        """Return whether a node is ready, or not ready for a moment only.

        A node whose cards were given up before this replica looked is not given another moment.
        """
        if ready:
            self._unready.pop(name, None)
            return True
        given_up = registered is not None and not any(one.healthy for one in registered.cards)
        clock = asyncio.get_running_loop().time()
        since = self._unready.setdefault(name, -math.inf if given_up else clock)
        return clock - since < self._tenure.settings.unready_seconds

    def _watch_time(self, name: str, *, uncertain: bool) -> None:
        if uncertain:
            self._uncertain.add(name)
        else:
            self._uncertain.discard(name)


def _is_as(known: cards.Node | None, wanted: tuple[str, tuple[cards.Card, ...]]) -> bool:
    """Return whether the ledger has a node as it is wanted."""
    return known is not None and not known.gone and (known.keeper, known.cards) == wanted
