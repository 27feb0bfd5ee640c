"""Misallocation reports: an event per pod with another's cards, and an eviction by policy."""

from msgspec.structs import replace

from ledger.kube.api.cluster_errors import ClusterError, NotFound
from ledger.kube.api.cluster_ports import PodEvent
from vgpu_native.agent.misallocation_reports import MisallocationReporter
from vgpu_native.plugin.allocation.allocation_store import Allocation, ContainerOwner

POD = ContainerOwner("team", "p", "uid-p", "main")
WRONG = Allocation("a0", ("GPU-0-0",), 0, ("GPU-0",), owner=POD, problem="Delete the pod")


class ModelPods:
    """A cluster whose next calls fail with the errors of `failing`."""

    def __init__(self) -> None:
        self.events: list[PodEvent] = []
        self.evicted: list[tuple[str, str, str]] = []
        self.failing: list[ClusterError] = []

    async def create_event(self, event: PodEvent) -> None:
        self._fail()
        self.events.append(event)

    async def evict(self, namespace: str, name: str, uid: str) -> None:
        self._fail()
        self.evicted.append((namespace, name, uid))

    def _fail(self) -> None:
        if self.failing:
            raise self.failing.pop()


def told(pods: ModelPods) -> list[str]:
    return [event.reason for event in pods.events]


async def test_a_misallocation_is_reported_once_without_an_eviction() -> None:
    pods = ModelPods()
    mistakes = MisallocationReporter(pods, "report")
    right = replace(WRONG, token="a1", problem="", tied=True)
    for _ in range(3):
        await mistakes.report([WRONG, right])
    [event] = pods.events
    assert (event.namespace, event.name, event.uid) == ("team", "p", "uid-p")
    assert (event.reason, event.note) == ("WrongGPUsAnswered", "Delete the pod")
    assert event.warning
    assert not pods.evicted


async def test_by_policy_the_pod_is_evicted_once() -> None:
    pods = ModelPods()
    mistakes = MisallocationReporter(pods, "evict")
    for _ in range(3):
        await mistakes.report([WRONG])
    assert pods.evicted == [("team", "p", "uid-p")]
    assert told(pods) == ["WrongGPUsAnswered", "EvictedForWrongGPUs"]


async def test_a_failed_report_is_retried() -> None:
    pods = ModelPods()
    mistakes = MisallocationReporter(pods, "evict")
    pods.failing = [ClusterError("not now"), ClusterError("not now")]
    await mistakes.report([WRONG])
    assert not pods.events
    assert not pods.evicted
    await mistakes.report([WRONG])
    assert pods.evicted == [("team", "p", "uid-p")]
    assert told(pods) == ["WrongGPUsAnswered", "EvictedForWrongGPUs"]


async def test_a_pod_is_not_evicted_when_it_is_gone() -> None:
    pods = ModelPods()
    mistakes = MisallocationReporter(pods, "evict")
    await mistakes.report([replace(WRONG, owner=None)])
    await mistakes.report([replace(WRONG, owner=ContainerOwner("", "", "uid-p", "main"))])
    assert not pods.events
    await MisallocationReporter(pods, "report").report([WRONG])
    pods.failing = [NotFound("gone")]
    again = MisallocationReporter(pods, "evict")
    again._reported.add(WRONG.token)
    for _ in range(2):
        await again.report([WRONG])
    assert not pods.evicted


async def test_a_misallocation_is_only_logged_when_there_is_no_cluster() -> None:
    await MisallocationReporter(None, "evict").report([WRONG])
