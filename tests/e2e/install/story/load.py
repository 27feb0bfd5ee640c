"""A load generator outside the cluster: clients that create, delete and scale work for cards.

It sends at a steady rate, however long the answers take, so that a slow answer does not hide those
that would have come meanwhile. Every request fits, so that every refusal is a failure of the
service under test.
"""

import asyncio
import itertools
import math
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, Final, NamedTuple, Self

import aiohttp

from tests.e2e.harness.cluster import Answer, Cluster, Manifest
from tests.e2e.install.rig.real_cluster import RealCluster
from tests.e2e.objects.pods import CARDS, CORES, MEMORY, pod
from tests.e2e.objects.workloads import replicated

NAMESPACE: Final = "load"
DEPLOYMENT: Final = "steady"
REQUEST_SECONDS: Final = 30.0
JOIN_SECONDS: Final = 60.0
IN_FLIGHT_MAX: Final = 100
HELD_MAX: Final = 20
"""Pods that the clients keep, so that the ledger has usage to count."""

_PAUSE_SECONDS: Final = 0.05
SCALES: Final = (3, 1, 4, 2)
_PLENTY: Final = {
    f"limits.{CARDS}": "10000",
    f"limits.{MEMORY}": "100000000",
    f"limits.{CORES}": "1000000",
}


class Refusal(NamedTuple):
    """A request that failed: when it was sent, in seconds since the beginning, and the seconds
    until its answer; the status is 0 without an answer."""

    at: float
    took: float
    request: str
    status: int
    message: str


class Load:
    """Clients that send `rate` requests per second in a thread of their own."""

    def __init__(self, cluster: RealCluster, rate: float, *, namespace: str = NAMESPACE) -> None:
        self.namespace = namespace
        self.sent: Counter[str] = Counter()
        self.refusals: list[Refusal] = []
        self.latencies: list[float] = []
        """Seconds until the answer, of all requests."""
        self._cluster = cluster
        self._rate = rate
        self._begun = time.monotonic()
        self._held: deque[str] = deque()
        self._unanswered: dict[int, float] = {}
        """When each request was sent that has no answer yet, by its number."""
        self._stopping = threading.Event()
        self._failure: BaseException | None = None

    @property
    def elapsed(self) -> float:
        """Return the seconds since the beginning."""
        return time.monotonic() - self._begun

    @contextmanager
    def running(self) -> Iterator[Self]:
        """Send requests while the body runs. Its namespace and quota are made at the first use."""
        self._stopping.clear()
        prepared = threading.Event()
        thread = threading.Thread(target=self._run_in_thread, args=(prepared,), name="load")
        thread.start()
        try:
            assert prepared.wait(JOIN_SECONDS), f"no namespace after {JOIN_SECONDS:g} s"
            yield self
        finally:
            self._stopping.set()
            thread.join(JOIN_SECONDS)
        assert not thread.is_alive(), f"the load did not end within {JOIN_SECONDS:g} s"
        if self._failure is not None:
            raise self._failure

    def answered(self) -> None:
        """Return when every request that was sent before now has its answer."""
        now, deadline = time.monotonic(), time.monotonic() + REQUEST_SECONDS + 1
        while any(sent <= now for sent in list(self._unanswered.values())):
            assert time.monotonic() < deadline, "a request outlived its deadline"
            time.sleep(_PAUSE_SECONDS)

    async def run(self, seconds: float) -> list[Refusal]:
        """Send requests for a time; return the refusals."""
        await self._prepare()
        self._begun = time.monotonic()
        await self._send_until(lambda: self.elapsed >= seconds)
        return self.refusals

    def percentile(self, percent: float) -> float:
        """Return the latency in seconds that so many percent of the requests did not exceed."""
        ordered = sorted(self.latencies)
        return ordered[max(0, math.ceil(len(ordered) * percent / 100) - 1)]

    def summary(self) -> str:
        """Return the counts and latencies in words."""
        return (
            f"{self.sent.total()} requests, {len(self.refusals)} refused,"
            f" p50 {self.percentile(50) * 1000:.0f} ms, p99 {self.percentile(99) * 1000:.0f} ms,"
            f" longest {self.percentile(100) * 1000:.0f} ms"
        )

    async def failed_creations(self) -> int:
        """Return how often a controller was refused a pod in the namespace, by its events."""
        path = f"/api/v1/namespaces/{self.namespace}/events"
        async with self._cluster.connected() as admin:
            events = await admin.items(f"{path}?fieldSelector=reason=FailedCreate")
        return sum((event.get("count") or 1) for event in events)

    async def _prepare(self) -> None:
        spec = {"hard": _PLENTY}
        quota = {"apiVersion": "v1", "kind": "ResourceQuota", "spec": spec}
        namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": self.namespace}}
        async with self._cluster.connected() as admin:
            if (await admin.ask("GET", self._path())).status == 200:
                return
            await admin.must("POST", "/api/v1/namespaces", namespace)
            quota["metadata"] = {"name": "plenty"}
            await admin.must("POST", self._path("resourcequotas"), quota)
            steady = replicated("Deployment", SCALES[-1], DEPLOYMENT)
            await admin.must("POST", self._path("deployments", "/apis/apps/v1"), steady)

    def _run_in_thread(self, prepared: threading.Event) -> None:
        """Have a loop of its own, because the test may run in one that it blocks."""
        try:
            asyncio.run(self._prepare())
            self._begun = time.monotonic()
            prepared.set()
            asyncio.run(self._send_until(self._stopping.is_set))
        except BaseException as failure:  # noqa: BLE001 - the main thread raises it
            self._failure = failure
        finally:
            prepared.set()

    async def _send_until(self, ended: Callable[[], bool]) -> None:
        free = asyncio.Semaphore(IN_FLIGHT_MAX)
        async with self._cluster.connected() as admin, asyncio.TaskGroup() as tasks:
            for number in itertools.count():
                if ended():
                    return
                await free.acquire()
                task = tasks.create_task(self._act(admin, number))
                task.add_done_callback(lambda _: free.release())
                due = self._begun + (number + 1) / self._rate
                await asyncio.sleep(max(0.0, due - time.monotonic()))

    def _act(self, admin: Cluster, number: int) -> Coroutine[Any, Any, None]:
        """Return the next request: two of four create a pod, one deletes one, one scales."""
        if number % 4 == 3:
            return self._scale(admin, SCALES[number // 4 % len(SCALES)])
        if number % 4 == 2 or len(self._held) > HELD_MAX:
            return self._delete(admin)
        return self._create(admin, f"pod-{time.monotonic_ns()}")

    async def _create(self, admin: Cluster, name: str) -> None:
        if await self._ask(admin, "POST", self._path("pods"), pod(name)):
            self._held.append(name)

    async def _delete(self, admin: Cluster) -> None:
        if self._held:
            path = f"{self._path('pods')}/{self._held.popleft()}?gracePeriodSeconds=0"
            await self._ask(admin, "DELETE", path)

    async def _scale(self, admin: Cluster, replicas: int) -> None:
        path = f"{self._path('deployments', '/apis/apps/v1')}/{DEPLOYMENT}/scale"
        await self._ask(admin, "PATCH", path, {"spec": {"replicas": replicas}})

    async def _ask(
        self, admin: Cluster, method: str, path: str, body: Manifest | None = None
    ) -> bool:
        self.sent[method] += 1
        number, begun = self.sent.total(), time.monotonic()
        self._unanswered[number] = begun
        try:
            answer = await _answer(admin, method, path, body)
        finally:
            del self._unanswered[number]
        took = time.monotonic() - begun
        self.latencies.append(took)
        if answer.status >= 300 or not answer.status:
            at = begun - self._begun
            self.refusals.append(
                Refusal(at, took, f"{method} {path}", answer.status, answer.message)
            )
            return False
        return True

    def _path(self, resource: str = "", version: str = "/api/v1") -> str:
        return f"{version}/namespaces/{self.namespace}/{resource}".rstrip("/")


async def _answer(admin: Cluster, method: str, path: str, body: Manifest | None) -> Answer:
    try:
        if method == "PATCH":
            assert body is not None
            return await asyncio.wait_for(admin.patch(path, body), REQUEST_SECONDS)
        return await admin.ask(method, path, body, within=REQUEST_SECONDS)
    except (aiohttp.ClientError, TimeoutError) as error:
        return Answer(0, {"message": f"{type(error).__name__}: {error}"})
