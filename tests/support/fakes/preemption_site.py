"""Preemption site: an extender that preempts at a model of an API server."""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime

import msgspec
from support.harness.extender_harness import (
    CLUSTER,
    DEADLINE_SECONDS,
    NAMESPACE,
    ExtenderReplica,
    ModelServer,
    pod,
)

from extender.preemption import preemption_queue
from ledger.core.model import commands
from ledger.core.model.cards import PreemptionClaim
from ledger.kube.api.cluster_errors import VersionConflict
from ledger.kube.api.cluster_ports import Listed
from ledger.kube.api.disruption_budgets import Budget, BudgetSpec, BudgetStatus
from ledger.kube.api.label_selectors import LabelSelector
from ledger.kube.api.objects import ObjectMeta, Pod
from ledger.log.memory_log import MemoryStore

SPACE, BACKOFF = f"{CLUSTER}/{NAMESPACE}", vars(preemption_queue)["Backoff"]
CARD = 16_000


class EvictingServer(ModelServer):
    """A model of an API server that evicts: a pod that is evicted ends when the test ends it.

    `evicted` are names, `refusals` errors by name. `before_evict` is awaited before each eviction.
    """

    def __init__(self) -> None:
        super().__init__()
        self.evicted: list[str] = []
        self.refusals: dict[str, Exception] = {}
        self.budgets: list[Budget] = []
        self.before_evict: Callable[[], Awaitable[None]] | None = None

    async def list_pods_on(self, node: str) -> Listed[Pod]:
        return Listed(
            1, [resident for resident in self.pods.values() if resident.spec.node_name == node]
        )

    async def list_budgets(self, namespace: str) -> Listed[Budget]:
        return Listed(1, self.budgets)

    async def evict(self, namespace: str, name: str, uid: str) -> None:
        if self.before_evict is not None:
            await self.before_evict()
        if name in self.refusals:
            raise self.refusals[name]
        stored = self.pods.get(name)
        if stored is None or stored.metadata.uid != uid:
            raise VersionConflict(f"{name} is another one")
        self.evicted.append(name)
        self.pods[name] = ending(stored)


class Site:
    """A node with two cards, an extender, and the pods on it by name."""

    def __init__(
        self, extender_replica: ExtenderReplica, server: EvictingServer, store: MemoryStore
    ) -> None:
        self.replica, self.server, self.store = extender_replica, server, store

    async def running(self, name: str, priority: int, **asked: int) -> Pod:
        """Bind a pod."""
        created = important(name, priority, **asked)
        self.server.add(created)
        await self.replica.create(created)
        for node in await self.replica.places(created, "n1", "n2"):
            if not await self.replica.bind(created, node):
                return created
        raise AssertionError(f"{name} fits nowhere")

    async def waiting(self, name: str, priority: int, **asked: int) -> Pod:
        """Create a pod that is not scheduled yet."""
        created = important(name, priority, **asked)
        self.server.add(created)
        await self.replica.create(created)
        return created

    async def asked(self, preemptor: Pod, *nodes: str) -> str:
        """Filter a pod that fits nowhere, and return the outcome."""
        before = len(self.outcomes())
        assert not await self.replica.places(preemptor, *(nodes or ("n1",)))
        outcome = await self.outcome_after(before)
        self.replica.ahead += preemption_queue.PAUSE_SECONDS_MAX
        return outcome

    async def outcome_after(self, before: int) -> str:
        """Return the outcome of the next try after so many."""
        async with asyncio.timeout(DEADLINE_SECONDS):
            while len(self.outcomes()) == before:
                self.replica.has_counted.clear()
                await self.replica.has_counted.wait()
        return self.outcomes()[before]

    async def tried_until(self, outcome: str) -> None:
        """Let pauses pass until this became of a try."""
        async with asyncio.timeout(DEADLINE_SECONDS):
            while outcome not in self.outcomes():
                self.replica.has_counted.clear()
                await self.replica.has_counted.wait()
                self.replica.ahead += preemption_queue.PAUSE_SECONDS_MAX

    def outcomes(self) -> list[str]:
        counted = self.replica.counted
        return [metric[1] for metric in counted if metric[0] == "preemptions_total"]

    def claims(self) -> list[PreemptionClaim]:
        return [claim for kept in self.replica.writer.state.claims.values() for claim in kept]

    async def ended(self, name: str) -> None:
        """Let a pod be gone, and the ledger know."""
        gone = self.server.pods.pop(name)
        end = commands.End(SPACE, f"pods/{name}", gone.metadata.uid, 10**6, "deleted")
        await self.replica.tell(end)


def important(name: str, priority: int, **asked: int) -> Pod:
    plain = pod(name, **asked)
    meta = msgspec.structs.replace(plain.metadata, labels={"pod": name})
    spec = msgspec.structs.replace(plain.spec, priority=priority, preemption_policy=None)
    return msgspec.structs.replace(plain, metadata=meta, spec=spec)


def budget(name: str, allowed: int) -> Budget:
    """Return a budget of the pod of a name."""
    selector = LabelSelector(match_labels={"pod": name})
    meta = ObjectMeta(name=f"of-{name}", namespace=NAMESPACE)
    return Budget(meta, BudgetSpec(selector), BudgetStatus(allowed))


def victims_of(claim: PreemptionClaim) -> list[str]:
    return [key.removeprefix("pods/") for _, key, _ in claim.victims]


def ending(evicted: Pod) -> Pod:
    meta = msgspec.structs.replace(evicted.metadata, deletion_timestamp=datetime.now(UTC))
    return msgspec.structs.replace(evicted, metadata=meta)
