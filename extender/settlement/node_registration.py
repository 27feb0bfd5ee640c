"""Node registration: commands for the cards that nodes have, and for removed nodes.

The wanted registration of a node is compared with the ledger whenever the node changes and, as long
as it may change by time alone, every few seconds. So there is no state to keep, and a repeated
command does no harm.

A node can announce other cards with each of its writes, so the bytes that each node may add to the
log are bounded. A node over its bound is read again every few seconds, until it may add more.
"""

import asyncio
import math
from collections.abc import Collection
from contextlib import suppress
from datetime import UTC, datetime
from typing import Final

import msgspec
import structlog

from extender.settlement import node_card_health
from extender.settlement.card_reconciler_context import SETTLED, CardReconcilerContext
from extender.settlement.node_card_health import UnreadyNodes
from extender.settlement.node_informer import NodeInformer
from ledger.core.model import cards
from ledger.core.model.commands import RegisterCards, RemoveNode
from ledger.core.model.events import AnyEvent, CardsRegistered
from ledger.core.model.qualified_names import local_name
from ledger.log.writer.log_capacity import TokenBuckets
from ledger.tasks.periodic import CooperativeYield

AGAIN_SECONDS: Final = 0.1
"""Pause before a node is checked whose last command is still on its way to the ledger."""

LOOK_SECONDS: Final = 5.0
"""How often nodes are checked whose registration may change by time alone."""

ANNOUNCED_BURST_BYTES: Final = 1024**2
"""Bytes that one node may add to the log at once; the largest announcement takes a quarter."""

ANNOUNCED_BYTES_PER_SECOND: Final = 1024
"""Bytes that one node may add per second afterwards."""

NODES_MAX: Final = 20_000
"""Nodes whose bytes are counted."""

_log: Final = structlog.get_logger("extender")


class NodeRegistration:
    """Registers the nodes of one cluster."""

    def __init__(self, context: CardReconcilerContext, nodes: NodeInformer) -> None:
        """Prepare; `run` does the work."""
        self._context = context
        self._nodes = nodes
        self._due: dict[str, None] = {}
        self._uncertain: set[str] = set()
        self._unready = UnreadyNodes(context.settings.unready_seconds)
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
        """Register nodes until cancelled."""
        await self._nodes.listed.wait()
        with self._nodes.listened_to_by(self._on_node):
            self._due.update(dict.fromkeys(self._everything()))
            while True:
                await self._settle()
                await self._wait()
                self._due.update(dict.fromkeys(self._uncertain | self._held))

    def follow(self, event: AnyEvent) -> None:
        """Check a node that another replica has registered and that does not exist here.

        The watch of that replica may be behind, and it may no longer be active when it reads the
        deletion of the node.
        """
        if isinstance(event, CardsRegistered):
            name = local_name(event.node)
            if name not in self._nodes.known:
                self._on_node(name)

    def _on_node(self, name: str) -> None:
        self._due[name] = None
        self._woken.set()

    def _everything(self) -> list[str]:
        """Return the nodes of the cluster and those of the ledger."""
        prefix = f"{self._context.name}/"
        registered = self._context.view.state.nodes
        names = [name.removeprefix(prefix) for name in registered if name.startswith(prefix)]
        return [*self._nodes.known, *names]

    async def _wait(self) -> None:
        """Wait until a node is due."""
        with suppress(TimeoutError):
            async with asyncio.timeout(AGAIN_SECONDS if self._due else LOOK_SECONDS):
                await self._woken.wait()
        self._woken.clear()

    async def _settle(self) -> None:
        """Check every due node that has no command on its way to the ledger."""
        stride = CooperativeYield()
        for name in list(self._due):
            await stride.step()
            if self._context.commands.is_pending("", self._context.qualified(name)):
                continue
            del self._due[name]
            command = self._command(name)
            if command is not None and self._may_send(name, command):
                await self._context.commands.send(command)

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
        """Return the command about a node, None if its registration is up to date."""
        node = self._context.qualified(name)
        registered, reading = self._context.view.state.nodes.get(node), self._nodes.known.get(name)
        if reading is None:
            self._unready.forget(name)
            self._uncertain.discard(name)
            self._held.discard(name)
            if registered is None or registered.gone:
                return None
            return RemoveNode(node, SETTLED, self._nodes.version)
        clock = asyncio.get_running_loop().time()
        lost = self._unready.is_lost(reading, registered, clock)
        now = datetime.fromtimestamp(self._context.now() / 1e6, UTC)
        wanted = node_card_health.cards_of(reading, registered, now, lost=lost)
        self._watch_time(name, uncertain=wanted is not None and reading.is_uncertain())
        if wanted is None or _is_as(registered, wanted):
            self._held.discard(name)
            return None
        return RegisterCards(node, *wanted, SETTLED, reading.version)

    def _watch_time(self, name: str, *, uncertain: bool) -> None:
        if uncertain:
            self._uncertain.add(name)
        else:
            self._uncertain.discard(name)


def _is_as(known: cards.NodeCards | None, wanted: tuple[str, tuple[cards.Card, ...]]) -> bool:
    """Return whether the registration of a node equals the wanted one."""
    return known is not None and not known.gone and (known.keeper, known.cards) == wanted
