"""Registering: the ledger is told which cards the nodes have, and which nodes are gone.

What a node is to be registered with is compared with what the ledger has, whenever the node says
something and, as long as time alone may change it, every few seconds. So nothing has to be
remembered, and telling twice does no harm.

A node can announce something else with each of its writes, so what each node may add to the log is
bounded. A node that has used that up is read again every few seconds, until there is room again.
"""

import asyncio
import math
from collections.abc import Collection
from contextlib import suppress
from datetime import UTC, datetime
from typing import Final

import msgspec
import structlog

from extender.settlement import node_reader
from extender.settlement.card_session import SETTLED, CardSettlementSession
from extender.settlement.node_informer import NodeInformer
from ledger.core.model import cards
from ledger.core.model.commands import RegisterCards, RemoveNode
from ledger.core.model.events import AnyEvent, CardsRegistered
from ledger.core.model.qualified_names import local_name
from ledger.log.writer.token_bucket import TokenBuckets
from ledger.tasks.periodic import CooperativeYield

AGAIN_SECONDS: Final = 0.1
"""Pause before a node is looked at whose last news are still on their way to the ledger."""

LOOK_SECONDS: Final = 5.0
"""How often nodes are looked at of which time alone may change what is thought."""

ANNOUNCED_BURST_BYTES: Final = 1024**2
"""What one node's announcements may add to the log at once; the largest one takes a quarter."""

ANNOUNCED_BYTES_PER_SECOND: Final = 1024
"""What they may add after that."""

NODES_MAX: Final = 20_000
"""Nodes of which it is remembered how much they have added."""

_log: Final = structlog.get_logger("extender")


class NodeRegistration:
    """Tells the ledger of one cluster's nodes."""

    def __init__(self, session: CardSettlementSession, nodes: NodeInformer) -> None:
        """Prepare; `run` does the work."""
        self._session = session
        self._nodes = nodes
        self._due: dict[str, None] = {}
        self._uncertain: set[str] = set()
        self._unready: dict[str, float] = {}
        self._woken = asyncio.Event()
        self._rates = TokenBuckets(
            ANNOUNCED_BURST_BYTES, ANNOUNCED_BYTES_PER_SECOND, keys_max=NODES_MAX
        )
        self._held: set[str] = set()

    @property
    def held(self) -> Collection[str]:
        """The nodes whose announcements wait, because they have added too much to the log."""
        return self._held

    async def run(self) -> None:
        """Tell until cancelled."""
        await self._nodes.listed.wait()
        with self._nodes.heard_by(self._hear):
            self._due.update(dict.fromkeys(self._everything()))
            while True:
                await self._settle()
                await self._wait()
                self._due.update(dict.fromkeys(self._uncertain | self._held))

    def follow(self, event: AnyEvent) -> None:
        """Look at a node that another replica has registered and that does not exist here.

        Its watch may be behind; and when it has seen the end of the node, it may not settle any
        more.
        """
        if isinstance(event, CardsRegistered):
            name = local_name(event.node)
            if name not in self._nodes.known:
                self._hear(name)

    def _hear(self, name: str) -> None:
        self._due[name] = None
        self._woken.set()

    def _everything(self) -> list[str]:
        """Return the nodes that there are, and those that the ledger has."""
        prefix = f"{self._session.name}/"
        registered = self._session.view.state.nodes
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
        stride = CooperativeYield()
        for name in list(self._due):
            await stride.step()
            if self._session.commands.is_pending("", self._session.qualified(name)):
                continue
            del self._due[name]
            command = self._command(name)
            if command is not None and self._may_send(name, command):
                await self._session.commands.send(command)

    def _may_send(self, name: str, command: RegisterCards | RemoveNode) -> bool:
        """Return whether a node may add to the log now, and count what it adds."""
        clock = asyncio.get_running_loop().time()
        if isinstance(command, RemoveNode):
            return True
        if wait := self._rates.wait(name, clock):
            if name not in self._held:
                _log.warning("node_announces_too_much", node=name, wait_seconds=math.ceil(wait))
            self._held.add(name)
            return False
        self._held.discard(name)
        self._rates.take(name, len(msgspec.msgpack.encode(command.cards)), clock)
        return True

    def _command(self, name: str) -> RegisterCards | RemoveNode | None:
        """Return what the ledger is to be told of a node, None when it knows."""
        node = self._session.qualified(name)
        registered, reading = self._session.view.state.nodes.get(node), self._nodes.known.get(name)
        if reading is None:
            self._unready.pop(name, None)
            self._uncertain.discard(name)
            self._held.discard(name)
            if registered is None or registered.gone:
                return None
            return RemoveNode(node, SETTLED, self._nodes.version)
        lost = not self._is_reachable(name, reading.ready, registered)
        now = datetime.fromtimestamp(self._session.now() / 1e6, UTC)
        wanted = node_reader.cards_of(reading, registered, now, lost=lost)
        self._watch_time(name, uncertain=wanted is not None and reading.is_uncertain())
        if wanted is None or _is_as(registered, wanted):
            self._held.discard(name)
            return None
        return RegisterCards(node, *wanted, SETTLED, reading.version)

    def _is_reachable(self, name: str, ready: bool, registered: cards.NodeCards | None) -> bool:
        """Return whether a node is ready, or not ready for a moment only.

        A node whose cards were given up before this replica looked is not given another moment.
        """
        if ready:
            self._unready.pop(name, None)
            return True
        given_up = registered is not None and not any(one.healthy for one in registered.cards)
        clock = asyncio.get_running_loop().time()
        since = self._unready.setdefault(name, -math.inf if given_up else clock)
        return clock - since < self._session.settings.unready_seconds

    def _watch_time(self, name: str, *, uncertain: bool) -> None:
        if uncertain:
            self._uncertain.add(name)
        else:
            self._uncertain.discard(name)


def _is_as(known: cards.NodeCards | None, wanted: tuple[str, tuple[cards.Card, ...]]) -> bool:
    """Return whether the ledger has a node as it is wanted."""
    return known is not None and not known.gone and (known.keeper, known.cards) == wanted
