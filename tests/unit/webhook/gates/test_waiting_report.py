"""The report of waiting pods: places, obstacles, pages, and no names of other namespaces."""

from datetime import UTC, datetime, timedelta
from functools import partial

import msgspec
import pytest
from support.fakes.apiserver import pod_body, quota_body
from support.harness.settlement import World, full_world, settling

from ledger.kube.api.pod_gates import GATE
from ledger.kube.watch.informers import NOT_LISTED
from webhook.gates import waiting_report
from webhook.gates.waiting_report import WaitingPage, WaitingQuestion, WaitingRow
from webhook.settlement.pod_reconciler import PODS

BEGIN = datetime(2026, 1, 1, tzinfo=UTC)
LIMIT = 500


def wait(world: World, name: str, *, age: int, gpu: int, namespace: str = "red") -> None:
    body = pod_body(name, gpu=gpu)
    created = (BEGIN - timedelta(seconds=age)).isoformat()
    body["metadata"] |= {"creationTimestamp": created}
    body["spec"]["schedulingGates"] = [{"name": GATE}]
    world.server.create("pods", namespace, body, f"uid-{namespace}-{name}")


def page(world: World, namespace: str = "", *, limit: int = LIMIT, after: str = "") -> WaitingPage:
    answer = world.settlement.waiting_page(WaitingQuestion(namespace, limit, after))
    assert answer is not None
    return answer


async def three_waiting(world: World) -> list[WaitingRow]:
    """Let two pods wait in red, of which one can never fit, and one in blue; return the rows."""
    await world.synced()
    for namespace in ("red", "blue"):
        world.server.create(
            "resourcequotas", namespace, quota_body("q", **{"limits.nvidia.com/gpu": "2"})
        )
        accounts = {f"quota/c/{namespace}/q"}
        await world.until(partial(accounts.issubset, world.state.accounts))
        world.server.create("pods", namespace, pod_body("holder", gpu=1), f"uid-{namespace}")
    await world.until(lambda: world.entry("holder") is not None)
    wait(world, "huge", age=90, gpu=3)
    wait(world, "first", age=60, gpu=2)
    wait(world, "second", age=30, gpu=2)
    wait(world, "other", age=45, gpu=2, namespace="blue")
    await world.until(
        lambda: len(page(world).rows) == 4 and all(row.obstacle for row in page(world).rows)
    )
    return page(world).rows


async def test_places_and_obstacles_of_waiting_pods() -> None:
    async with full_world() as world, settling(world):
        rows = await three_waiting(world)
        assert [(row.namespace, row.pod, row.place) for row in rows] == [
            ("blue", "other", 1),
            ("red", "huge", 0),
            ("red", "first", 1),
            ("red", "second", 2),
        ]
        _, huge, first, second = rows
        assert (first.cluster, first.key, first.uid) == ("c", "pods/first", "uid-red-first")
        assert first.amounts["nvidia.com/gpu"] == 2
        assert first.since == "2025-12-31T23:59:00Z"
        assert 'quota "q" allows 2, 1 is used' in first.obstacle
        assert second.obstacle.startswith("waits behind pod first, which waits for room")
        assert 'quota "q" allows 2' in huge.obstacle


async def test_rows_of_one_namespace_name_no_pod_of_another() -> None:
    async with full_world() as world, settling(world):
        await three_waiting(world)
        red = page(world, "red").rows
        assert {row.namespace for row in red} == {"red"}
        text = msgspec.json.encode(red).decode()
        assert "blue" not in text
        assert "other" not in text
        assert page(world, "gone").rows == []


async def test_pages_follow_each_other_without_gap_when_a_pod_left() -> None:
    async with full_world() as world, settling(world):
        rows = await three_waiting(world)
        begin = page(world, limit=2)
        assert begin.rows == rows[:2]
        world.server.delete("pods", "red", "huge")
        await world.until(lambda: len(page(world).rows) == 3)
        rest = page(world, limit=2, after=begin.next)
        assert [row.pod for row in rest.rows] == ["first", "second"]
        assert rest.next == ""


async def test_a_page_ends_at_its_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    async with full_world() as world, settling(world):
        rows = await three_waiting(world)
        monkeypatch.setattr(waiting_report, "PAGE_BYTES_MAX", 1)
        read, after = list[WaitingRow](), ""
        for _ in rows:
            answer = page(world, after=after)
            assert len(answer.rows) == 1
            read, after = read + answer.rows, answer.next
        assert (read, after) == (rows, "")


async def test_a_passive_replica_has_no_report() -> None:
    async with full_world() as world:
        assert world.settlement.waiting_page(WaitingQuestion("", LIMIT)) is None


async def test_a_replica_that_has_not_listed_the_pods_has_no_report() -> None:
    async with full_world() as world, settling(world):
        await three_waiting(world)
        active = world.settlement._active
        assert active is not None
        active.informers.waiting[PODS] = NOT_LISTED
        assert world.settlement.waiting_page(WaitingQuestion("", LIMIT)) is None
        del active.informers.waiting[PODS]
        assert len(page(world).rows) == 4


@pytest.mark.parametrize("after", ["x", "red/abc/pods/p", "red/99999999999999999999/k", "/"])
async def test_an_unreadable_place_begins_at_the_first_row(after: str) -> None:
    async with full_world() as world, settling(world):
        rows = await three_waiting(world)
        assert page(world, after=after).rows == rows
