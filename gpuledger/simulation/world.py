"""The world of one run: everything that is simulated, and the script that it goes through."""

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import Any, Final

from gpuledger.simulation import script
from gpuledger.simulation.admission import Admission
from gpuledger.simulation.apiserver import ApiServer
from gpuledger.simulation.checking import Checker
from gpuledger.simulation.replica import Lease, Replica
from gpuledger.simulation.requests import BEYOND_SECONDS, Requests
from gpuledger.simulation.script import SETTLE_SECONDS, Script
from gpuledger.simulation.watched import WatchedCluster
from ledger.log.memory import MemoryStore
from ledger.simulation.messages import Exchange
from ledger.simulation.network import CALM, Weather

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
        self._server = ApiServer(self._written)
        self.checker.attend(self._server)
        self._lease = Lease()
        self._exchange = Exchange()
        self._replicas = [self._replica(number) for number in range(plan.replicas)]
        admission = Admission(self._replicas, self._source, note)
        self._requests = Requests(self._server, admission, self._source)
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
        self._hold((0,), (len(self._replicas) - 1,))
        for replica in self._replicas:
            replica.start()
        running = []
        for operation in self._plan.operations:
            await asyncio.sleep(operation.at - loop.time())
            self._note(f"do {operation}")
            running.append(asyncio.create_task(self._do(operation)))
        async with asyncio.timeout(REQUEST_SECONDS_MAX):
            await asyncio.gather(*running)
        # A write that is late may still come when its request has long failed.
        await asyncio.sleep(BEYOND_SECONDS + script.LATE_SECONDS_MAX)
        self._calm()
        await self._settle()
        if self._plan.cut_tail and self.checker.violation is None:
            await self._lose_the_tail()

    async def _do(self, operation: script.Operation) -> None:
        await _DO[type(operation)](self, operation)

    async def _set_quota(self, operation: script.SetQuota) -> None:
        self._server.set_quota(operation.namespace, operation.name, operation.hard)

    async def _drop_quota(self, operation: script.DropQuota) -> None:
        self._server.drop_quota(operation.namespace, operation.name)

    async def _kill(self, operation: script.Kill) -> None:
        replica = self._replicas[operation.replica]
        if replica.is_up():
            replica.kill()
            await asyncio.sleep(operation.down)
            replica.start()

    async def _pass_lease(self, operation: script.Lease) -> None:
        self._hold(operation.holders, operation.settlers)

    async def _clock(self, operation: script.Clock) -> None:
        self._replicas[operation.replica].offset = operation.offset

    async def _stall(self, operation: script.Stall) -> None:
        cluster = self._replicas[operation.replica].cluster
        cluster.stall(operation.seconds, expired=operation.expired)
        cluster.trouble = 0.1

    async def _lists(self, operation: script.Lists) -> None:
        cluster = self._replicas[operation.replica].cluster
        cluster.list_seconds, cluster.lists_failing = operation.seconds, operation.failing

    async def _storm(self, operation: script.Storm) -> None:
        ends = asyncio.get_running_loop().time() + operation.seconds
        self._storm_ends = max(self._storm_ends, ends)
        for replica in self._replicas:
            replica.faults.weather = Weather(operation.trouble, operation.slow)
        await asyncio.sleep(operation.seconds)
        if self._storm_ends <= ends:
            for replica in self._replicas:
                replica.faults.weather = CALM

    async def _partition(self, operation: script.Partition) -> None:
        faults = self._replicas[operation.replica].faults
        faults.cut_off = True
        await asyncio.sleep(operation.seconds)
        faults.cut_off = False

    async def _snapshot(self, operation: script.Snapshot) -> None:
        self._replicas[operation.replica].snapshot_wanted = True

    async def _create(self, operation: script.Create) -> None:
        await self._requests.create(operation)

    async def _update(self, operation: script.Update) -> None:
        await self._requests.update(operation)

    async def _status(self, operation: script.Status) -> None:
        await self._requests.status(operation)

    async def _delete(self, operation: script.Delete) -> None:
        await self._requests.delete(operation)

    def _calm(self) -> None:
        """End all misfortune: from now on everything works."""
        self._note("calm")
        self._hold((0,), (len(self._replicas) - 1,))
        for replica in self._replicas:
            replica.offset = 0.0
            replica.faults.weather, replica.faults.cut_off = CALM, False
            replica.cluster.calm()

    async def _settle(self) -> None:
        """Wait until ledger and cluster agree and stay so."""
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

    def _hold(self, holders: tuple[int, ...], settlers: tuple[int, ...]) -> None:
        names = [replica.name for replica in self._replicas]
        self._lease.holders = tuple(names[number] for number in holders)
        self._lease.settlers = tuple(names[number] for number in settlers)

    def _written(self, name: tuple[str, str]) -> None:
        stored = self._server.pods.objects.get(name)
        version = stored.metadata.resource_version if stored is not None else "gone"
        self._note(f"etcd: {name[0]}/{name[1]} is now {version}")
        self.checker.written(name)

    def _replica(self, number: int) -> Replica:
        source = random.Random(f"replica {number} of {self._plan.seed}")
        cluster = WatchedCluster(self._server, source)
        return Replica(
            number,
            self._store,
            cluster,
            self.checker,
            source,
            self._lease,
            self._exchange,
            recount=self._plan.recount,
        )


_DO: Final[dict[type, Callable[[World, Any], Awaitable[None]]]] = {
    script.SetQuota: World._set_quota,
    script.DropQuota: World._drop_quota,
    script.Kill: World._kill,
    script.Lease: World._pass_lease,
    script.Clock: World._clock,
    script.Stall: World._stall,
    script.Lists: World._lists,
    script.Storm: World._storm,
    script.Partition: World._partition,
    script.Snapshot: World._snapshot,
    script.Create: World._create,
    script.Update: World._update,
    script.Status: World._status,
    script.Delete: World._delete,
}
