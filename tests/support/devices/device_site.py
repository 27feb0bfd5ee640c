"""Device site: a writer, and the reconcilers of allocated devices without a cluster."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

from support.harness.replicas import running

from extender.settlement.allocated_devices.card_overlap import CardOverlaps
from extender.settlement.allocated_devices.device_placements import DevicePlacements
from extender.settlement.allocated_devices.offered_cards import OfferedCards
from extender.settlement.card_reconciler_context import CardReconcilerContext, CardSettings
from ledger.core.model.accounts import card
from ledger.core.model.cards import OWN, Card, Part, Phase, Placement
from ledger.core.model.commands import AnyCommand, Observe, Place, RegisterCards, Reserve
from ledger.core.model.denials import Denial
from ledger.core.model.devices import Device, Devices
from ledger.log.command_delivery import CommandQueue
from ledger.log.memory_log import MemoryStore
from ledger.log.records import Record
from ledger.log.writer.writer import Writer

NODE, TEAM = "east/n1", "east/team"
GPU = "nvidia.com/gpu"


def device(card: str = "GPU-0", **changes: Any) -> Device:
    """Return a shared device of 8,000 MiB on a card of the node."""
    fields: dict[str, Any] = {
        "claim": "c",
        "request": "gpu",
        "driver": "gpu.nvidia.com",
        "pool": "n1",
        "device": f"dev-{card}",
        "share": "s1",
        "node": NODE,
        "card": card,
        "memory": 8_000,
        "cores": 30,
    }
    return Device(**{**fields, **changes})


class GatedLedger:
    """A ledger that decides the commands of settlement while `gate` is set."""

    def __init__(self, writer: Writer) -> None:
        self.gate = asyncio.Event()
        self.gate.set()
        self._writer = writer

    async def submit(self, command: AnyCommand, *given: Any, **named: Any) -> Any:
        await self.gate.wait()
        return await self._writer.submit(command, *given, **named)


class DeviceSite:
    """The reconcilers of one cluster on a writer; `counted` are the counters that were raised."""

    def __init__(self, writer: Writer, gate: asyncio.Event, commands: CommandQueue) -> None:
        self.writer = writer
        self.gate = gate
        self.commands = commands
        self.counted: list[tuple[str, ...]] = []
        self.offered = OfferedCards()
        self.context = CardReconcilerContext(
            writer,
            None,  # type: ignore[arg-type]  # nothing is read from a cluster
            "east",
            CardSettings(),
            lambda: 0,
            commands,
            lambda *names: self.counted.append(names),
        )
        self.begin()
        writer.subscribe(self._follow)
        self.version = 0

    def begin(self) -> None:
        """Begin an active period."""
        self.placements = DevicePlacements(self.context)
        self.overlaps = CardOverlaps(self.context, self.offered)

    def _follow(self, record: Record) -> None:
        for item in record.items:
            self.placements.follow(item.event)
            self.overlaps.follow(item.event)

    async def tell(self, *commands: AnyCommand) -> None:
        for command in commands:
            answer = await self.writer.submit(command)
            assert not isinstance(answer, Denial), answer.message

    async def announce(self, *uuids: str, keeper: str = OWN) -> None:
        """Have the node announce cards of 16,000 MiB."""
        cards = tuple(Card(uuid, at, "T4", 16_000, 100, 4) for at, uuid in enumerate(uuids))
        await self.tell(RegisterCards(NODE, keeper, cards))

    async def observe(self, key: str, *devices: Device, uid: str = "u") -> None:
        """Observe an object with devices."""
        self.version += 1
        demand = {GPU: len(devices) or 1}
        given: Devices = devices
        await self.tell(Observe(TEAM, key, uid, self.version, demand, devices=given))

    async def place(self, name: str, *shares: Any) -> None:
        """Place a pod, as an extender does."""
        parts = (Part("main", Phase.APP, shares),)
        await self.tell(
            Reserve(TEAM, f"pods/{name}", name, {GPU: 1}),
            Place(TEAM, f"pods/{name}", name, NODE, parts),
        )

    async def settled(self) -> None:
        """Settle until no command follows any more."""
        for _ in range(4):
            await self.placements.settle()
            await self.commands.flush()

    def placed(self, key: str) -> Placement | None:
        placement = self.writer.state.placement(TEAM, key)
        return placement if placement is not None and placement.node else None

    def used(self, uuid: str) -> tuple[int, ...]:
        """Return MiB, percent and containers of a card."""
        account = self.writer.state.accounts[card("east", "n1", uuid)]
        return tuple(self.writer.state.used[line] for line in account.lines.values())


@contextlib.asynccontextmanager
async def device_site() -> AsyncIterator[DeviceSite]:
    async with running(MemoryStore()) as writer:
        ledger = GatedLedger(writer)
        commands = CommandQueue(ledger)
        delivering = asyncio.create_task(commands.run())
        try:
            yield DeviceSite(writer, ledger.gate, commands)
        finally:
            delivering.cancel()
            await asyncio.wait([delivering])
