"""Agent site: a node with a kubelet, a ledger and a cluster, on which an agent process runs."""

import contextlib
from pathlib import Path

from support.fakes.kubelet import Kubelet
from support.harness.agent_harness import Agent, NodeApi, agent
from support.harness.native_library import machine

from ledger.core.model import commands
from ledger.core.model.accounts import quota
from ledger.core.model.cards import OWN, Part, Parts, Phase, Share
from ledger.kube.hami import node_announcement
from ledger.log.ledger_port import Accepted
from ledger.log.writer.writer import Writer

NODE = "n0"
SPACE = "local/team"
KEY = "pods/p"
UID = "01234567-89ab-cdef-0123-456789abcdef"
CARD = "GPU-00000000-0000-0000-0000-000000000000"
LATER = "pods/q"
LATER_UID = UID[::-1]


class AgentSite:
    """A node, its ledger and its cluster."""

    def __init__(self, directory: Path, kubelet: Kubelet, api: NodeApi, writer: Writer) -> None:
        self.directory, self.kubelet, self.api, self.writer = directory, kubelet, api, writer
        self.arguments: list[str] = []
        self.environment = machine(directory / "machine", 2, "1g")

    async def do(self, *those: commands.AnyCommand) -> None:
        for command in those:
            answer = await self.writer.submit(command)
            assert isinstance(answer, Accepted), answer

    async def place(self, memory: int = 100) -> None:
        """Let the ledger know what the node announces, and place a pod there."""
        announced = node_announcement.read_announcement(self.api.annotations)
        assert announced.keeper == OWN
        assert not announced.problem
        await self.do(
            commands.SetLimits(quota("local", "team", "q"), (SPACE,), {"limits.nvidia.com/gpu": 9}),
            commands.RegisterCards(f"local/{NODE}", OWN, announced.cards),
            commands.Reserve(SPACE, KEY, UID, {"nvidia.com/gpu": 1}),
            commands.Observe(SPACE, KEY, UID, 1, {"nvidia.com/gpu": 1}),
            commands.Place(SPACE, KEY, UID, f"local/{NODE}", parts(memory), {}),
        )

    async def place_later(self) -> None:
        """Place another pod, on another card."""
        cards = node_announcement.read_announcement(self.api.annotations).cards
        other = (Part("main", Phase.APP, (Share(cards[1].uuid, 100, 50),)),)
        await self.do(
            commands.Reserve(SPACE, LATER, LATER_UID, {"nvidia.com/gpu": 1}),
            commands.Observe(SPACE, LATER, LATER_UID, 1, {"nvidia.com/gpu": 1}),
            commands.Place(SPACE, LATER, LATER_UID, f"local/{NODE}", other, {}),
        )

    async def resize(self, memory: int) -> None:
        await self.do(commands.Resize(SPACE, KEY, UID, parts(memory), {}))

    def run_agent(self, *more: str) -> contextlib.AbstractAsyncContextManager[Agent]:
        return agent(self.directory, [*self.arguments, *more], self.environment)


def parts(memory: int) -> Parts:
    return (Part("main", Phase.APP, (Share(CARD, memory, 50),)),)
