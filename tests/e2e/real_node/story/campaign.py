"""A campaign: pods come and go while kubelet, containerd and agent are killed, seeded.

At every look the driver's memory of each pod is on the cards of its placement and within its limit.
"""

import random
import time
from collections import Counter
from typing import Final

from tests.e2e.harness.cluster import Manifest
from tests.e2e.real_node.machine.gpu_node import MEMORY_MIB
from tests.e2e.real_node.story.api import wait_for
from tests.e2e.real_node.story.interruptions import PROGRAMS, interrupt, wait_back
from tests.e2e.real_node.story.tenant import RESOURCE, Tenant
from tests.e2e.real_node.story.tenant_pod import PodProgram, tenant_pod

WIDTH: Final = 6
"""Pods at one time."""

LOOKS_MAX: Final = 8
PAUSE_SECONDS: Final = 0.1
BACKOFF_SECONDS: Final = 1.0
"""A controller, too, waits before it creates a pod instead of a rejected one."""

SIZES: Final = (500, 1_000, 2_000, 3_000, 6_000)
REJECTED: Final = ("UnexpectedAdmissionError", f"OutOf{RESOURCE}")
"""Reasons of the kubelet: its plugin does not answer, or is not registered after a restart."""

ENDED_SECONDS: Final = 60.0


class Visitor:
    """A pod of the campaign."""

    def __init__(self, name: str, cards: int, memory: int, looks: int) -> None:
        self.name, self.cards, self.memory, self.looks = name, cards, memory, looks
        self.uid = ""
        self.program: PodProgram | None = None
        self.deleted = False


class Campaign:
    """So many pods, with an interruption after every few of them."""

    def __init__(self, team: Tenant, *, pods: int, every: int, seed: int) -> None:
        """Let `pods` pods run, and interrupt after every `every` of them."""
        self.looks = 0
        self.most_used = 0
        self.counts: Counter[str] = Counter()
        self._team, self._total, self._every = team, pods, every
        self._random = random.Random(seed)
        self._visitors: dict[str, Visitor] = {}
        self._limits: dict[str, int] = {}
        self._posted = 0
        self._admits_from = 0.0

    @property
    def ran(self) -> int:
        """Return how many pods have run and ended."""
        return self.counts["ran"]

    def run(self, within: float) -> None:
        """Run until enough pods have run. Fails at the first wrong look, and after a time."""
        deadline = time.monotonic() + within
        interrupted = 0
        while self.ran < self._total:
            assert time.monotonic() < deadline, f"after {within:g} s only {self.counts}"
            self._admit()
            pods = {pod["metadata"]["name"]: pod for pod in self._team.pods()}
            for visitor in list(self._visitors.values()):
                if pod := pods.get(visitor.name):
                    self._step(visitor, pod)
                else:
                    self._evicted(visitor)
            self._forget_gone()
            self._look()
            if self.ran // self._every > interrupted:
                interrupted = self.ran // self._every
                self._interrupt()
            time.sleep(PAUSE_SECONDS)
        self._end()

    def _admit(self) -> None:
        if time.monotonic() < self._admits_from:
            return
        missing = self._total - self.ran - len(self._visitors)
        for _ in range(min(WIDTH - len(self._visitors), missing)):
            self._posted += 1
            chosen = self._random
            visitor = Visitor(
                f"pod-{self._posted}",
                2 if chosen.random() < 0.2 else 1,
                chosen.choice(SIZES),
                chosen.randint(1, LOOKS_MAX),
            )
            pod = tenant_pod(visitor.name, cards=visitor.cards, memory=visitor.memory)
            visitor.uid = self._team.post(pod)["metadata"]["uid"]
            self._limits[visitor.uid] = visitor.memory
            self._visitors[visitor.name] = visitor

    def _step(self, visitor: Visitor, pod: Manifest) -> None:
        """Let a pod go on: start to use its cards, use them for some looks, end."""
        phase = pod["status"]["phase"]
        if phase == "Failed" and not visitor.deleted:
            assert pod["status"]["reason"] in REJECTED, pod["status"]
            assert self._team.cards_by_runtime(visitor.uid) == [], "a rejected pod has run"
            self._admits_from = time.monotonic() + BACKOFF_SECONDS
            self._leave(visitor, "rejected")
        elif phase == "Running" and visitor.program is None and not visitor.deleted:
            visitor.program = PodProgram(pod["status"]["podIP"])
            assert visitor.program.do("fill").held == visitor.memory
        elif visitor.program is not None:
            assert visitor.program.do("take", 1).held == visitor.memory
            visitor.looks -= 1
            if visitor.looks <= 0:
                self._team.assert_own_cards(pod)
                self._leave(visitor, "ran")

    def _evicted(self, visitor: Visitor) -> None:
        """Count a pod that the agent has evicted: it had the answer for another, and never ran."""
        assert visitor.program is None, f"{visitor.name} is gone while it runs"
        assert self._team.cards_by_runtime(visitor.uid) == []
        self.counts["evicted"] += 1
        visitor.deleted = True

    def _leave(self, visitor: Visitor, how: str) -> None:
        self.counts[how] += 1
        if visitor.program is not None:
            visitor.program.close()
            visitor.program = None
        visitor.deleted = True
        self._team.delete(visitor.name)

    def _forget_gone(self) -> None:
        gone = [visitor for visitor in self._visitors.values() if visitor.deleted]
        for visitor in gone:
            del self._visitors[visitor.name]

    def _look(self) -> None:
        """Compare the driver's memory of each pod with its placement."""
        memory = self._team.gpus.driver.memory()
        placed = {pod["metadata"]["uid"]: pod for pod in self._team.pods()}
        for (uid, card), used in memory.items():
            pod = placed.get(uid)
            if pod is None:
                # It has ended since, and the driver has not noticed yet.
                continue
            assert card in self._team.cards_by_ledger(pod), f"{uid} uses {card} of another pod"
            assert used <= self._limits[uid], f"{uid} uses {used} MiB of {self._limits[uid]}"
        for number in {card for _, card in memory}:
            used = sum(amount for (_, card), amount in memory.items() if card == number)
            assert used <= MEMORY_MIB, f"{number} has {used} MiB in use"
            self.most_used = max(self.most_used, used)
        self.looks += 1

    def _interrupt(self) -> None:
        program = self._random.choice(PROGRAMS)
        self.counts[program] += 1
        interrupt(self._team.gpus, program)

    def _end(self) -> None:
        """Check that nothing is left: in the driver, and in the ledger."""
        gpus = self._team.gpus
        wait_back(gpus)
        self._team.wait_gone(*(pod["metadata"]["name"] for pod in self._team.pods()))
        wait_for(
            lambda: {uid for uid, _ in gpus.driver.memory()} & set(self._limits),
            lambda left: not left,
            within=ENDED_SECONDS,
            what="the cards are free",
        )
        wait_for(
            lambda: (self._promised(), gpus.memory_by_annotations()),
            lambda seen: seen[0] == seen[1],
            within=ENDED_SECONDS,
            what="the ledger has promised what pods of other namespaces have",
        )

    def _promised(self) -> Counter[str]:
        """Return the MiB of each used card that the ledger has given to pods."""
        rows = self._team.gpus.gpuledger("cards")
        return Counter({row["uuid"]: row["used_memory"] for row in rows if row["used_memory"]})
