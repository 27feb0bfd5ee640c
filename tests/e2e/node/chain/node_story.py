"""A node of the chain's tests: its agent, its kubelet, and a narrator of the events."""

import asyncio
import time
from pathlib import Path
from typing import Any, Final

from support.fakes.kubelet import Kubelet

from gpuledger.demo.narration import Narrator
from tests.e2e.harness.polling import eventually
from tests.e2e.node.chain.agent import Agent
from tests.e2e.node.chain.container import Container
from tests.e2e.scheduling.support.scheduling_cluster import SchedulingCluster
from tests.e2e.scheduling.support.team import SchedulingTeam
from vgpu_native.shared import limits_page
from vgpu_native.shared.limits_page import MEBIBYTE

SEEN_SECONDS: Final = 30.0
PAUSE_SECONDS: Final = 0.01


class NodeStory:
    """The actors, their observable state, and a narrator of the events.

    The narration is printed; pytest shows it with -s, and when a test fails.
    """

    def __init__(
        self, yard: SchedulingCluster, agent: Agent, kubelet: Kubelet, teller: Narrator
    ) -> None:
        self.yard, self.agent, self.kubelet, self.teller = yard, agent, kubelet, teller

    def pages(self) -> list[Path]:
        """Return the limits pages that the agent has written."""
        return sorted(self.agent.state.glob("allocations/*/limits"))

    def show_page(self, page: Path) -> tuple[int, int]:
        """Print a limits page's entry of its only card, and return that: MiB and percent."""
        [device] = limits_page.read(page).devices
        memory = device.memory // MEBIBYTE
        self.teller.line(f"the page says: {memory:,} MiB, {device.cores} % of the time")
        return memory, device.cores

    async def show_cards(self) -> None:
        """Show the cards as the ledger counts them."""
        self.teller.command("gpuledger cards")
        for card in await self.yard.service.answer("cards"):
            self.teller.line(
                f"{card['uuid']}  {card['used_memory']:,} of {card['memory']:,} MiB are promised, "
                f"{card['used_cores']} of {card['cores']} % of the time, "
                f"{card['used_slots']} of {card['slots']} slots"
            )

    async def show_usage(self, namespace: str, used: int) -> None:
        """Wait until so much of a namespace's only limit is used, and show it."""
        self.teller.command(f"gpuledger usage -n {namespace}")
        [usage] = await eventually(
            lambda: self.yard.service.answer("usage", "-n", namespace),
            lambda rows: [row["used"] for row in rows] == [used],
            within=SEEN_SECONDS,
            what=f"{used:,} of the limit are used",
        )
        self.teller.line(f"{usage['resource']}  {usage['used']:,} of {usage['limit']:,} are used")

    async def show_events(self, namespace: str) -> None:
        """Show what the log has of a namespace."""
        self.teller.command(f"gpuledger audit replay -n {namespace}")
        for event in await self.yard.service.events(namespace):
            amounts = ", ".join(f"{name} {amount:,}" for name, amount in event["amounts"].items())
            text = f"{event['position']:4}  {event['type']:10}  {event['key']:28}  {amounts}"
            self.teller.line(text.rstrip())

    async def resize(self, team: SchedulingTeam, memory: int) -> None:
        """Change in the ledger what the container `main` of the pod `web` may use."""
        asked = ("web", "-n", team.namespace, "--container", "main", "--memory", str(memory))
        self.teller.command(f"gpuledger resize {' '.join(asked)}")
        [card] = (await self.yard.service.answer("resize", *asked))["cards"]
        self.teller.line(f"{card['memory_before']:,} MiB before, {card['memory']:,} MiB now")

    async def sees(self, process: Container, memory: int) -> None:
        """Wait until a process that runs sees this limit."""

        async def total() -> int:
            return process.do("info").total

        await eventually(
            total,
            lambda seen: seen == memory,
            within=SEEN_SECONDS,
            what=f"the process sees {memory:,} MiB",
            pause=PAUSE_SECONDS,
        )

    async def resize_and_see(self, team: SchedulingTeam, process: Container, memory: int) -> None:
        """Change a limit in the ledger, and print when a running process reads it."""
        begun = time.monotonic()

        async def seen() -> float:
            await self.sees(process, memory)
            return time.monotonic() - begun

        after, _ = await asyncio.gather(seen(), self.resize(team, memory))
        ended = time.monotonic() - begun
        self.teller.claim(
            f"process {process.pid} sees {memory:,} MiB, {after:.2f} s after the command began, "
            f"which took {ended:.2f} s"
        )

    async def use(self, bytes_held: int) -> dict[str, Any]:
        """Wait until the agent reports so much for its only container; return that."""
        [usage] = await eventually(
            self.agent.containers,
            lambda containers: (
                [container["memory_used"] for container in containers] == [bytes_held]
            ),
            within=SEEN_SECONDS,
            what="the agent tells what the container uses",
        )
        return dict(usage)
