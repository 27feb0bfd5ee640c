"""Role world: replicas with the real role label, an API server, kubelets, endpoints of a Service.

Everything runs in virtual time. The world samples the endpoints that a node's rules forward to, and
notes each moment at which a new connection could fail: there is no endpoint, or one of them does
not accept.
"""

import asyncio
import itertools
import random
from collections import deque
from typing import Any, Final, NamedTuple

import msgspec

from gpuledger.server.role.role_label import RoleLabel
from ledger.kube.api.cluster_errors import ClusterUnavailable, NotFound
from ledger.kube.client.pod_role import LABEL, REVIEWER
from ledger.log.jetstream.stream_configuration import StreamNames
from ledger.log.log_port import Unreachable
from ledger.log.peers.owner_beats import OwnerBeats
from simulation.engine.messages import Message
from simulation.engine.processes import Process, outside

NAMES: Final = StreamNames("main")
NAMESPACE: Final = "own"
CLUSTER: Final = "east"
REPLICAS: Final = 3
SAMPLE_SECONDS: Final = 0.05
LEASE_SECONDS: Final = (3.0, 5.0)
"""The time from the death of the owner until its lease is free."""

PROBE_SECONDS: Final = 5.0
FAILING_PROBES: Final = 3
"""Failed probes in a row after which a pod is not ready."""

NODE_GRACE_SECONDS: Final = 40.0
"""The time after which the pods of a silent node are not ready."""

PRE_STOP_SECONDS: Final = 5.0
DRAIN_SECONDS: Final = 0.2
PROXY_SECONDS_MAX: Final = 1.2
"""The longest time from a write of a pod to the rules of a node."""


class Connection:
    """A replica's connection to NATS; `cut` messages get lost."""

    def __init__(self, world: "RoleWorld", process: Process) -> None:
        self._world, self._process = world, process
        self.cut = False
        self.receive: Any = None

    async def subscribe(self, _: str, receive: Any) -> None:
        """Receive what any replica publishes."""
        self.receive = receive

    async def publish(self, _: str, payload: bytes) -> None:
        """Send to all replicas, this one too. Raises Unreachable."""
        if self.cut:
            raise Unreachable("cut")
        for replica in self._world.replicas.values():
            outside(replica.connection.deliver(payload, self._world.source.random() * 0.05))

    async def deliver(self, payload: bytes, delay: float) -> None:
        """Hand a message over if the replica lives and is connected."""
        await asyncio.sleep(delay)
        if self.receive is not None and self._process.alive and not self.cut:
            answer: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
            self._process.start(self.receive(Message(payload, answer)))


class ReplicaPod:
    """A pod of the service: its object at the API server, and its process on a node.

    The node may be without power, or apart: it does not reach the API server.
    """

    def __init__(self, world: "RoleWorld", name: str) -> None:
        self.name, self.uid = name, name
        self.labels = {LABEL: REVIEWER}
        self.is_ready = False
        self.is_deleted = False
        self.powered = True
        self.apart = False
        self.able = True
        self.accepts = False
        self._world = world
        self.start()

    def start(self) -> None:
        """Start a process, which accepts connections after a second."""
        self.process = Process(self.name)
        self.connection = Connection(self._world, self.process)
        beats = OwnerBeats(CLUSTER, self.name)
        self.role = RoleLabel(
            ClientOf(self._world, self),  # type: ignore[arg-type]  # it has what the role label calls
            beats,
            namespace=NAMESPACE,
            pod=self.name,
            is_owner=lambda: self._world.owner == self.name,
            is_ready=lambda: self.able and self.accepts,
        )
        self.process.start(self._run(beats))

    async def _run(self, beats: OwnerBeats) -> None:
        await asyncio.sleep(1.0)
        self.accepts = True
        connection: Any = self.connection
        await beats.start(connection, NAMES)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(beats.run(connection, NAMES))
            tasks.create_task(self.role.run())

    def kill(self) -> None:
        """End the process by SIGKILL."""
        self.process.kill()
        self.accepts = False

    def endpoint(self) -> tuple[bool, bool]:
        """Return whether the pod is a ready endpoint, and whether it is one that only serves."""
        selected = LABEL in self.labels
        return (
            selected and self.is_ready and not self.is_deleted,
            selected and self.is_ready and self.is_deleted,
        )


class ClientOf:
    """The API server as a replica sees it."""

    def __init__(self, world: "RoleWorld", pod: ReplicaPod) -> None:
        self._world, self._pod = world, pod

    async def request(self, method: str, path: str, **options: Any) -> bytes:
        """Read or patch a pod. Raises ClusterError."""
        world = self._world
        await asyncio.sleep(0.01 + world.source.random() * 0.2)
        if world.api_is_away or self._pod.apart:
            raise ClusterUnavailable("away")
        pod = world.replicas.get(path.rpartition("/")[2])
        if pod is None:
            raise NotFound(path)
        if method == "PATCH":
            for key, value in msgspec.json.decode(options["body"])["metadata"]["labels"].items():
                pod.labels.pop(key, None)
                if value is not None:
                    pod.labels[key] = value
                world.writes += 1
        metadata: dict[str, object] = {"labels": pod.labels}
        if pod.is_deleted:
            metadata["deletionTimestamp"] = "2026-01-01T00:00:00Z"
        condition = {"type": "Ready", "status": str(pod.is_ready)}
        return msgspec.json.encode({"metadata": metadata, "status": {"conditions": [condition]}})


class Bad(NamedTuple):
    """A moment at which a new connection could fail, and the endpoints then."""

    at: float
    endpoints: tuple[str, ...]


class RoleWorld:
    """All replicas of one Service; `bad` are the moments at which a new connection could fail."""

    def __init__(self, source: random.Random) -> None:
        self.source = source
        self.owner = ""
        self.api_is_away = False
        self.writes = 0
        self.bad: list[Bad] = []
        self.replicas: dict[str, ReplicaPod] = {}
        self._numbers = itertools.count()
        self._views: deque[tuple[float, tuple[str, ...]]] = deque()
        self._lag = source.random() * PROXY_SECONDS_MAX
        self._tasks: set[asyncio.Task[None]] = set()

    async def begin(self) -> None:
        """Start the replicas and everything around them; return when one answers alone."""
        for _ in range(REPLICAS):
            self.add()
        self.keep(self._lease())
        self.keep(self._sample())
        await self._until_one_answers(within=60.0)
        await asyncio.sleep(2 * PROXY_SECONDS_MAX)

    def add(self) -> ReplicaPod:
        """Create a pod, on a node of its own."""
        pod = ReplicaPod(self, f"pod-{next(self._numbers)}")
        self.replicas[pod.name] = pod
        self.keep(self._kubelet(pod))
        return pod

    def keep(self, work: Any) -> None:
        """Run work of the world until it ends."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def labelled(self) -> list[str]:
        """Return the names of the pods with the label."""
        return [pod.name for pod in self.replicas.values() if LABEL in pod.labels]

    async def _until_one_answers(self, *, within: float) -> None:
        """Return when only the owner has the label and answers alone. Raises TimeoutError."""
        async with asyncio.timeout(within):
            while not self._one_answers():  # noqa: ASYNC110 - labels have no event
                await asyncio.sleep(SAMPLE_SECONDS)

    def _one_answers(self) -> bool:
        return self.labelled() == [self.owner] and self.replicas[self.owner].role.alone

    async def delete(self, pod: ReplicaPod) -> None:
        """Delete a pod: preStop, SIGTERM, and the end of the process and of the object."""
        pod.is_deleted = True
        await asyncio.sleep(PRE_STOP_SECONDS)
        pod.able = False
        await asyncio.sleep(DRAIN_SECONDS)
        pod.kill()
        if self.owner == pod.name:
            self.owner = ""
        await asyncio.sleep(self.source.random())
        del self.replicas[pod.name]

    async def _kubelet(self, pod: ReplicaPod) -> None:
        """Probe a process, and start another one after it has ended."""
        await asyncio.sleep(self.source.random() * PROBE_SECONDS)
        failed = 0
        while not pod.is_deleted:
            if not pod.powered or pod.apart:
                await asyncio.sleep(NODE_GRACE_SECONDS)
                pod.is_ready = False
                return
            if not pod.process.alive:
                await asyncio.sleep(0.5 + 1.5 * self.source.random())
                pod.is_ready = False
                await asyncio.sleep(1 + 2 * self.source.random())
                if pod.powered:
                    pod.start()
            else:
                failed = 0 if pod.accepts and pod.able else failed + 1
                pod.is_ready = not failed or (pod.is_ready and failed < FAILING_PROBES)
            await self._while_alive(pod, PROBE_SECONDS)

    async def _while_alive(self, pod: ReplicaPod, seconds: float) -> None:
        """Wait until the next probe, or until the process has ended."""
        for _ in range(round(seconds / SAMPLE_SECONDS)):
            if not pod.process.alive or pod.apart:
                return
            await asyncio.sleep(SAMPLE_SECONDS)

    async def _lease(self) -> None:
        """Give the lease to a replica that lives and is connected, as its last one expires."""
        while True:
            holder = self.replicas.get(self.owner)
            if self.owner and (holder is None or not _bids(holder)):
                await asyncio.sleep(self.source.uniform(*LEASE_SECONDS))
                self.owner = ""
            if not self.owner:
                await asyncio.sleep(self.source.random())
                bidding = [pod.name for pod in self.replicas.values() if _bids(pod)]
                self.owner = self.source.choice(bidding) if bidding else ""
            await asyncio.sleep(SAMPLE_SECONDS)

    async def _sample(self) -> None:
        """Note the moments at which a new connection could fail."""
        loop = asyncio.get_running_loop()
        while True:
            now = loop.time()
            self._views.append((now, self._endpoints()))
            while len(self._views) > 1 and self._views[1][0] <= now - self._lag:
                self._views.popleft()
            view = self._views[0][1]
            if not view or not all(self._accepts(name) for name in view):
                self.bad.append(Bad(now, view))
            await asyncio.sleep(SAMPLE_SECONDS)

    def _endpoints(self) -> tuple[str, ...]:
        """Return the ready endpoints, or without any those that are terminating and serve."""
        pods = [(pod.name, *pod.endpoint()) for pod in self.replicas.values()]
        ready = tuple(name for name, is_ready, _ in pods if is_ready)
        return ready or tuple(name for name, _, serves in pods if serves)

    def _accepts(self, name: str) -> bool:
        pod = self.replicas.get(name)
        return pod is not None and pod.powered and pod.accepts


def _bids(pod: ReplicaPod) -> bool:
    return pod.accepts and pod.process.alive and not pod.connection.cut
