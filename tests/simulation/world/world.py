"""World of a run: all simulated parts, and the script that they perform."""

import asyncio
import random
from collections.abc import Awaitable, Callable, Iterable, Iterator
from typing import Any, Final

from ledger.log.memory_log import MemoryStore
from simulation.actors.admitted_writes import BEYOND_SECONDS
from simulation.engine.faulty_log import NO_FAULTS, FaultRates
from simulation.engine.messages import MessageBroker
from simulation.model import operations
from simulation.model.settings import CLUSTERS, SETTLE_SECONDS
from simulation.oracle.checker import Checker
from simulation.script import operations_author
from simulation.script.script import Script
from simulation.world.card_cluster_client import CardClusterClient
from simulation.world.replica import Lease, Replica
from simulation.world.simulated_cluster import Actor, SimulatedCluster

QUIET_SECONDS_MAX: Final = 6 * SETTLE_SECONDS
"""How long after the last fault everything may take to settle."""

QUIET_LOOKS: Final = 3
"""So many looks in a row must find everything settled, a second apart."""

REFUSAL_SECONDS_MAX: Final = 10.0
"""How long a replica may take to find out that the log has lost its tail."""

REQUEST_SECONDS_MAX: Final = 400.0
"""No operation takes longer; one that does is stuck."""


class _Store(MemoryStore):
    """A store that shows every record to the checker the moment it is stored."""

    def __init__(self, checker: Checker) -> None:
        super().__init__()
        self._checker = checker

    def store(self, payload: bytes, expected: int) -> int:
        """Store a record. Raises Conflict."""
        position = super().store(payload, expected)
        self._checker.stored(position, payload)
        return position


class World:
    """One run. Make it inside the loop; `play` goes through the script."""

    def __init__(self, plan: Script, note: Callable[[str], None]) -> None:
        self._plan = plan
        self._note = note
        self.checker = Checker(note)
        self._source = random.Random(f"world {plan.seed}")
        self._store = _Store(self.checker)
        self._lease = Lease()
        self._exchange = MessageBroker()
        self._places = [
            SimulatedCluster(name, self._source, self.checker, note)
            for name in CLUSTERS[: plan.clusters]
        ]
        for place in self._places:
            place.schedule(plan.schedulers)
        self._replicas = [self._replica(number) for number in range(plan.replicas)]
        self._storm_ends = 0.0

    async def play(self) -> None:
        """Go through the script, let everything settle, and look what is left."""
        playing = asyncio.create_task(self._play())
        violated = asyncio.create_task(self.checker.violated.wait())
        await asyncio.wait((playing, violated), return_when=asyncio.FIRST_COMPLETED)
        if playing.done():
            playing.result()

    async def _play(self) -> None:
        loop = asyncio.get_running_loop()
        self._hold((0,), range(len(self._replicas)))
        for replica in self._replicas:
            replica.start()
        controlling = [asyncio.create_task(part.run()) for part in self._players()]
        running = []
        for operation in self._plan.operations:
            await asyncio.sleep(operation.at - loop.time())
            self._note(f"do {operation}")
            running.append(asyncio.create_task(self._do(operation)))
        async with asyncio.timeout(REQUEST_SECONDS_MAX):
            await asyncio.gather(*running)
        for place in self._places:
            place.stop()
        # A write that is late may still come when its request has long failed.
        await asyncio.sleep(BEYOND_SECONDS + operations_author.LATE_SECONDS_MAX)
        self._calm()
        await self._settle()
        for task in controlling:
            if task.done():
                task.result()
        if self._plan.cut_tail and self.checker.violation is None:
            await self._lose_the_tail()

    def _players(self) -> Iterator[Actor]:
        """Yield everything in the clusters that acts by itself."""
        for place in self._places:
            yield place.controllers
            if self._plan.has_claims:
                yield place.claim_controllers
            if self._plan.schedulers:
                yield place.kubelets
                yield from place.schedulers

    async def _do(self, operation: operations.Operation) -> None:
        act = _DO.get(type(operation))
        if act is not None:
            await act(self, operation)
            return
        cluster = getattr(operation, "cluster", 0)
        await self._places[cluster % len(self._places)].do(operation)

    async def _move(self, operation: operations.MoveCluster) -> None:
        """Start all replicas of a cluster again, with other settings."""
        place = self._places[operation.cluster % len(self._places)]
        place.server.region = operation.region
        for replica in self._of(place):
            if replica.is_up():
                replica.kill()
                replica.start()

    async def _cut_link(self, operation: operations.CutLink) -> None:
        place = self._places[operation.cluster % len(self._places)]
        for replica in self._of(place):
            replica.faults.cut_off = True
        await asyncio.sleep(operation.seconds)
        for replica in self._of(place):
            replica.faults.cut_off = False

    async def _kill(self, operation: operations.Kill) -> None:
        replica = self._replicas[operation.replica]
        if replica.is_up():
            replica.kill()
            await asyncio.sleep(operation.down)
            replica.start()

    async def _pass_lease(self, operation: operations.Lease) -> None:
        self._hold(operation.holders, operation.settlers)

    async def _clock(self, operation: operations.Clock) -> None:
        self._replicas[operation.replica].offset = operation.offset

    async def _stall(self, operation: operations.Stall) -> None:
        cluster = self._replicas[operation.replica].cluster
        cluster.stall(operation.seconds, expired=operation.expired)
        cluster.trouble = 0.1

    async def _lists(self, operation: operations.Lists) -> None:
        cluster = self._replicas[operation.replica].cluster
        cluster.list_seconds, cluster.lists_failing = operation.seconds, operation.failing

    async def _storm(self, operation: operations.Storm) -> None:
        ends = asyncio.get_running_loop().time() + operation.seconds
        self._storm_ends = max(self._storm_ends, ends)
        for replica in self._replicas:
            replica.faults.weather = FaultRates(operation.trouble, operation.slow)
        await asyncio.sleep(operation.seconds)
        if self._storm_ends <= ends:
            for replica in self._replicas:
                replica.faults.weather = NO_FAULTS

    async def _partition(self, operation: operations.Partition) -> None:
        faults = self._replicas[operation.replica].faults
        faults.cut_off = True
        await asyncio.sleep(operation.seconds)
        faults.cut_off = False

    async def _snapshot(self, operation: operations.Snapshot) -> None:
        self._replicas[operation.replica].snapshot_wanted = True

    def _calm(self) -> None:
        """End all misfortune: from now on everything works."""
        self._note("calm")
        self._hold((0,), range(len(self._replicas) - len(self._places), len(self._replicas)))
        for replica in self._replicas:
            replica.offset = 0.0
            replica.faults.weather, replica.faults.cut_off = NO_FAULTS, False
            replica.cluster.calm()
        for place in self._places:
            place.kubelets.calm()

    async def _settle(self) -> None:
        """Wait until ledger and clusters agree and stay so."""
        loop = asyncio.get_running_loop()
        until, agreed = loop.time() + QUIET_SECONDS_MAX, 0
        while agreed < QUIET_LOOKS:
            await asyncio.sleep(1.0)
            differences = self.checker.differences()
            agreed = 0 if differences else agreed + 1
            if loop.time() > until:
                self.checker.fail("after all is quiet, ledger and cluster agree", differences[0])
                return
        for replica in self._replicas:
            if replica.stopped():
                self.checker.fail("no replica stops without a reason", replica.stopped())

    async def _lose_the_tail(self) -> None:
        """Cut the log below what every replica has seen: each must refuse to go on."""
        heads = [replica.head.position for replica in self._replicas if replica.head is not None]
        if len(heads) < len(self._replicas):
            return
        for replica in self._replicas:
            replica.kill()
        self._note(f"the log is cut at {min(heads) - 1}")
        del self._store.records[min(heads) - 1 :]
        for replica in self._replicas:
            replica.start()
        await asyncio.sleep(REFUSAL_SECONDS_MAX)
        for replica in self._replicas:
            if not replica.stopped():
                self.checker.fail(
                    "a log that lost its tail stops", f"{replica.name} goes on writing"
                )

    def _hold(self, holders: Iterable[int], settlers: Iterable[int]) -> None:
        names = [replica.name for replica in self._replicas]
        self._lease.holders = tuple(names[number] for number in holders)
        self._lease.settlers = tuple(names[number] for number in settlers)

    def _of(self, place: SimulatedCluster) -> list[Replica]:
        return [replica for replica in self._replicas if replica.cluster.name == place.server.name]

    def _replica(self, number: int) -> Replica:
        source = random.Random(f"replica {number} of {self._plan.seed}")
        place = self._places[number % len(self._places)]
        replica = Replica(
            number,
            self._store,
            CardClusterClient(
                place.server, source, self._plan.binding_trouble, self._plan.label_trouble
            ),
            self.checker,
            source,
            self._lease,
            self._exchange,
            self._plan,
        )
        place.replicas.append(replica)
        return replica


_DO: Final[dict[type, Callable[[World, Any], Awaitable[None]]]] = {
    operations.MoveCluster: World._move,
    operations.CutLink: World._cut_link,
    operations.Kill: World._kill,
    operations.Lease: World._pass_lease,
    operations.Clock: World._clock,
    operations.Stall: World._stall,
    operations.Lists: World._lists,
    operations.Storm: World._storm,
    operations.Partition: World._partition,
    operations.Snapshot: World._snapshot,
}
"""Operations on replicas; all others happen in a cluster."""
