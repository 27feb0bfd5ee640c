"""The times of the events of waiting pods, and their number in one round."""

import pytest

from ledger.core.model.denials import Denial, Reason, Shortage
from ledger.core.model.qualified_names import local_name
from ledger.kube.api.cluster_ports import PodEvent
from ledger.kube.client import pod_event_queue
from ledger.kube.client.pod_event_queue import PodEventQueue
from webhook.gates import waiting_events
from webhook.gates.waiting_events import (
    AGAIN_SECONDS,
    CHANGED_SECONDS,
    FIRST_SECONDS,
    ROUND_MAX,
    Obstacle,
    PodWait,
    WaitingEvents,
)


class Nowhere:
    async def create_event(self, event: PodEvent) -> None:
        raise AssertionError("nothing is written in these tests")


class Scene:
    """Waiting pods of one namespace, and what became of their events."""

    def __init__(self) -> None:
        self.pods: dict[str, Obstacle | None] = {}
        self.looked = 0
        self.queue = PodEventQueue(Nowhere(), "settlement", count=lambda *_: None)
        self.events = WaitingEvents(self.queue, self._find)

    def wait(self, uid: str, obstacle: Obstacle | None, now: float = 0.0) -> None:
        self.pods[uid] = obstacle
        self.events.note(("c/red", uid), now)

    def changes(self, uid: str, obstacle: Obstacle) -> None:
        self.pods[uid] = obstacle
        self.events.note_obstacle(("c/red", uid), obstacle)

    def round(self, now: float) -> list[PodEvent]:
        """Return the events of one round."""
        self.events.write(now)
        waiting = self.queue._waiting
        return [waiting.get_nowait() for _ in range(waiting.qsize())]

    def _find(self, namespace: str, uid: str) -> PodWait | None:
        self.looked += 1
        if uid not in self.pods:
            return None
        return PodWait(local_name(namespace), f"pod-{uid}", self.pods[uid])


def short(quota: str, used: int = 4) -> Obstacle:
    line = Shortage(f"quota/c/red/{quota}", "limits.nvidia.com/gpu", 1, used, 4, 0, 1)
    return Obstacle.of(Denial(Reason.EXCEEDS_LIMIT, f"{used} used", True, shortages=(line,)))


async def test_first_event_is_written_after_a_short_wait() -> None:
    scene = Scene()
    scene.wait("a", short("q"))
    assert scene.round(FIRST_SECONDS - 0.1) == []
    [event] = scene.round(FIRST_SECONDS)
    assert (event.namespace, event.name, event.uid) == ("red", "pod-a", "a")
    assert (event.reason, event.warning) == ("WaitingForQuota", True)
    assert event.note.startswith("waits for room: ")
    assert "4 used" in event.note


async def test_event_is_written_each_half_hour_when_the_reason_stays() -> None:
    scene = Scene()
    scene.wait("a", short("q"))
    assert len(scene.round(10)) == 1
    scene.changes("a", short("q", used=3))
    scene.wait("a", short("q", used=2), 20)
    assert scene.round(10 + AGAIN_SECONDS - 1) == []
    assert len(scene.round(10 + AGAIN_SECONDS)) == 1
    assert scene.round(10 + 2 * AGAIN_SECONDS - 1) == []


async def test_event_is_written_after_a_minute_when_the_reason_changes() -> None:
    scene = Scene()
    scene.wait("a", short("q"))
    scene.round(10)
    for used in range(5):
        scene.changes("a", short("other", used))
    assert scene.round(10 + CHANGED_SECONDS - 1) == []
    assert len(scene.round(10 + CHANGED_SECONDS)) == 1
    assert scene.round(10 + CHANGED_SECONDS + 1) == []


async def test_event_names_the_pod_in_front() -> None:
    scene = Scene()
    scene.wait("a", short("q").behind("first"))
    [event] = scene.round(10)
    assert event.note.startswith("waits behind pod first, which waits for room: ")
    assert "4 used" in event.note


async def test_pod_is_checked_later_when_it_was_not_tried_yet() -> None:
    scene = Scene()
    scene.wait("a", None)
    assert scene.round(10) == []
    assert scene.looked == 1
    assert scene.round(11) == []
    assert scene.looked == 1
    scene.pods["a"] = short("q")
    assert len(scene.round(10 + FIRST_SECONDS)) == 1


async def test_round_checks_no_more_pods_than_its_bound() -> None:
    scene = Scene()
    for number in range(3 * ROUND_MAX):
        scene.wait(str(number), short("q"))
    for _ in range(3):
        assert len(scene.round(10)) == ROUND_MAX
    assert scene.looked == 3 * ROUND_MAX
    assert scene.round(10) == []
    assert scene.looked == 3 * ROUND_MAX
    for number in range(3 * ROUND_MAX):
        scene.changes(str(number), short("other"))
    assert len(scene.round(1_000)) == ROUND_MAX


async def test_event_is_written_later_when_the_queue_is_full(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    scene = Scene()
    dropped: list[tuple[str, ...]] = []
    scene.queue._count = lambda *what: dropped.append(what)
    monkeypatch.setattr(waiting_events, "ROUND_MAX", pod_event_queue.WAITING_MAX + 1)
    for number in range(pod_event_queue.WAITING_MAX + 1):
        scene.wait(str(number), short("q"))
    assert len(scene.round(10)) == pod_event_queue.WAITING_MAX
    assert len(scene.round(10)) == 1
    assert dropped == []


async def test_pod_is_forgotten_when_it_no_longer_waits() -> None:
    scene = Scene()
    for uid in ("told", "gone", "new"):
        scene.wait(uid, short("q"), 100 if uid == "new" else 0)
    assert len(scene.round(10)) == 2
    scene.events.forget(("c/red", "told"))
    scene.events.forget(("c/red", "new"))
    del scene.pods["gone"]
    assert scene.round(10 + AGAIN_SECONDS) == []
    assert len(scene.events) == 0


async def test_untried_pods_do_not_delay_the_events_of_others() -> None:
    scene = Scene()
    scene.wait("a", short("q"))
    assert len(scene.round(10)) == 1
    for number in range(8 * ROUND_MAX):
        scene.wait(str(number), None, 20)
    scene.changes("a", short("other"))
    now = 10 + CHANGED_SECONDS
    assert len(scene.round(now)) == 1
    for second in range(16):
        assert scene.round(now + second) == []
    scene.wait("b", short("q"), now)
    scene.looked = 0
    [event] = scene.round(now + 16)
    assert event.uid == "b"
    assert scene.looked == ROUND_MAX
    [event] = scene.round(now + AGAIN_SECONDS)
    assert event.uid == "a"
