"""Events on their way: what is written, and what is dropped is counted."""

import asyncio

from structlog.testing import capture_logs
from support.harness.waiting import until

from ledger.kube.api.cluster_errors import ClusterError, Forbidden
from ledger.kube.api.cluster_ports import PodEvent
from ledger.kube.client import pod_event_queue
from ledger.kube.client.pod_event_queue import PodEventQueue


class Server:
    """Takes events; `refusing` is what it answers."""

    def __init__(self) -> None:
        self.events: list[str] = []
        self.refusing: ClusterError | None = None

    async def create_event(self, event: PodEvent) -> None:
        if self.refusing is not None:
            raise self.refusing
        self.events.append(event.note)


def event(note: str) -> PodEvent:
    return PodEvent(namespace="red", name="p", uid="u", reason="R", note=note, action="A")


async def test_events_are_written_in_their_order() -> None:
    server = Server()
    queue = PodEventQueue(server, "tests", count=_uncounted)
    task = asyncio.create_task(queue.run())
    for number in range(5):
        assert queue.put(event(str(number)))
    await until(lambda: len(server.events) == 5)
    task.cancel()
    assert server.events == list("01234")


async def test_event_queue_drops_counts_and_logs_events_beyond_the_bound() -> None:
    counted: list[tuple[str, ...]] = []
    queue = PodEventQueue(Server(), "tests", count=lambda *what: counted.append(what))
    with capture_logs() as logged:
        taken = [queue.put(event("e")) for _ in range(pod_event_queue.WAITING_MAX + 7)]
        assert [line["event"] for line in logged] == ["events_dropped"]
        queue._log_from = 0.0
        queue.put(event("e"))
    assert taken == [True] * pod_event_queue.WAITING_MAX + [False] * 7
    assert counted == [("events_dropped_total", "tests", "full")] * 8
    assert [line["count"] for line in logged] == [1, 7]


async def test_events_are_counted_and_dropped_when_the_api_server_refuses_them() -> None:
    server, counted = Server(), list[tuple[str, ...]]()
    queue = PodEventQueue(server, "tests", count=lambda *what: counted.append(what))
    server.refusing = Forbidden("no rights")
    task = asyncio.create_task(queue.run())
    queue.put(event("refused"))
    await until(lambda: bool(counted))
    server.refusing = None
    queue.put(event("written"))
    await until(lambda: bool(server.events))
    task.cancel()
    assert counted == [("events_dropped_total", "tests", "refused")]
    assert server.events == ["written"]


def _uncounted(*_: str) -> None:
    """Count nothing."""
