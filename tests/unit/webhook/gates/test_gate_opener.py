"""Pods behind the scheduling gate, and their admission."""

import asyncio
from datetime import UTC, datetime, timedelta

import pytest
from support.fakes.apiserver import pod_body, quota_body
from support.harness.settlement import World, full_world, settling

from ledger.core.model.commands import Reserve
from ledger.kube.api.api_resources import POLICIES
from ledger.kube.api.cluster_errors import ClusterUnavailable
from ledger.kube.api.pod_gates import GATE
from ledger.log.memory_log import MemoryStore
from ledger.log.writer import denial_log
from webhook.gates import gate_opener, gate_queue, waiting_events

GPUS = "limits.nvidia.com/gpu"
BEGIN = datetime(2026, 1, 1, tzinfo=UTC)


def waiting_pod(name: str, age: int = 0, gpu: int = 1) -> dict:
    body = pod_body(name, gpu=gpu)
    created = (BEGIN - timedelta(seconds=age)).isoformat()
    body["metadata"] |= {"creationTimestamp": created}
    body["spec"]["schedulingGates"] = [{"name": GATE}, {"name": "other"}]
    return body


def wait(world: World, name: str, age: int = 0, gpu: int = 1, namespace: str = "red") -> dict:
    return world.server.create("pods", namespace, waiting_pod(name, age, gpu), f"uid-{name}")


def is_gated(world: World, name: str, namespace: str = "red") -> bool:
    gates = world.server.objects["pods", namespace, name]["spec"]["schedulingGates"]
    return {"name": GATE} in gates


async def limited(world: World, gpu: int, namespace: str = "red") -> None:
    world.server.create("resourcequotas", namespace, quota_body("q", **{GPUS: str(gpu)}))
    account = f"quota/c/{namespace}/q"
    await world.until(lambda: account in world.state.accounts)


async def test_gate_is_removed_when_the_demand_is_reserved():
    async with full_world() as world, settling(world):
        await world.synced()
        await limited(world, 1)
        wait(world, "p")
        await world.until(lambda: not is_gated(world, "p"))
        await world.until(lambda: world.entry("p").committed is not None)
        assert {"name": "other"} in world.server.objects["pods", "red", "p"]["spec"][
            "schedulingGates"
        ]
        assert world.drift == {}


async def test_waiting_pod_is_charged_nothing_until_amounts_are_freed():
    async with full_world() as world, settling(world):
        await world.synced()
        await limited(world, 1)
        world.server.create("pods", "red", pod_body("first"))
        await world.until(lambda: world.entry("first") is not None)
        wait(world, "p")
        await world.until(lambda: any(isinstance(told, Reserve) for told in world.asked))
        world.server.update("pods", "red", "p", status={"phase": "Pending"})
        assert world.entry("p") is None
        assert is_gated(world, "p")
        world.server.delete("pods", "red", "first")
        await world.until(lambda: not is_gated(world, "p"))


async def test_number_and_age_of_waiting_pods_are_reported():
    async with full_world() as world, settling(world):
        await world.synced()
        assert (world.settlement.waiting, world.settlement.waiting_seconds_max) == (0, 0.0)
        await limited(world, 0)
        wait(world, "young", age=60)
        wait(world, "old", age=600)
        await world.until(lambda: world.settlement.waiting == 2)
        since_begin = world.now / 1e6 - BEGIN.timestamp()
        assert world.settlement.waiting_seconds_max == since_begin + 600
    assert (world.settlement.waiting, world.settlement.waiting_seconds_max) == (0, 0.0)


async def test_waiting_pod_is_not_tried_while_nothing_changes():
    async with full_world() as world, settling(world):
        await world.synced()
        await limited(world, 1)
        world.server.create("pods", "red", pod_body("first"))
        await world.until(lambda: world.entry("first") is not None)
        wait(world, "p")
        await world.until(lambda: any(isinstance(told, Reserve) for told in world.asked))
        await asyncio.sleep(2.5)  # some rounds, to give a needless question its chance
        assert sum(isinstance(told, Reserve) for told in world.asked) == 1


async def test_waiting_pod_is_tried_again_after_a_while(monkeypatch):
    monkeypatch.setattr(gate_queue, "SLOW_SECONDS", 0.5)
    async with full_world() as world, settling(world):
        await world.synced()
        await limited(world, 0)
        wait(world, "p", gpu=1)
        await world.until(lambda: sum(isinstance(told, Reserve) for told in world.asked) > 1)


async def test_one_denial_is_recorded_for_each_waiting_pod(monkeypatch):
    monkeypatch.setattr(gate_queue, "SLOW_SECONDS", 0.05)
    store = MemoryStore()
    async with full_world(store=store) as world, settling(world):
        await world.synced()
        await limited(world, 0)
        for name in ("p", "q"):
            wait(world, name)
        await world.until(lambda: sum(isinstance(told, Reserve) for told in world.asked) > 8)
        async with asyncio.timeout(30):
            while len(store.denials) < 2:
                await store.news()
        kept = [denial_log.decode(denial.payload).uid for denial in store.denials]
        assert sorted(kept) == ["uid-p", "uid-q"]
        world.server.update("resourcequotas", "red", "q", spec={"hard": {GPUS: "2"}})
        await world.until(lambda: not is_gated(world, "p") and not is_gated(world, "q"))


async def test_oldest_pod_of_a_namespace_is_admitted_first():
    async with full_world() as world:
        for name, age, gpu in (("a-young", 1, 1), ("z-old", 9, 2)):
            wait(world, name, age, gpu)
        world.server.create("resourcequotas", "red", quota_body("q", **{GPUS: "2"}))
        world.server.create("pods", "red", pod_body("first"))
        async with settling(world):
            await world.synced()
            await world.until(lambda: any(isinstance(told, Reserve) for told in world.asked))
            await asyncio.sleep(1.2)
            assert is_gated(world, "a-young")
            world.server.delete("pods", "red", "first")
            await world.until(lambda: not is_gated(world, "z-old"))
            assert is_gated(world, "a-young")


async def test_pod_that_never_fits_does_not_block_the_others():
    async with full_world() as world:
        for name, age, gpu in (("a-young", 1, 1), ("z-old", 9, 5)):
            wait(world, name, age, gpu)
        world.server.create("resourcequotas", "red", quota_body("q", **{GPUS: "2"}))
        async with settling(world):
            await world.until(lambda: not is_gated(world, "a-young"))
            assert is_gated(world, "z-old")
            raised = {"hard": {GPUS: "6"}}
            world.server.update("resourcequotas", "red", "q", spec=raised)
            await world.until(lambda: not is_gated(world, "z-old"))


@pytest.mark.parametrize("tries", [1, gate_opener.TRIES_MAX])
async def test_namespaces_take_turns(tries, monkeypatch):
    monkeypatch.setattr(gate_opener, "TRIES_MAX", tries)
    async with full_world() as world:
        for number in range(5):
            wait(world, f"r{number}", 100 - number)
        wait(world, "b", namespace="blue")
        async with settling(world):
            await world.until(lambda: not is_gated(world, "b", "blue"))
            await world.until(lambda: not is_gated(world, "r4"))
        opened = [write[2] for write in world.cluster.writes if write[0] == "gate"]
        assert opened.index("b") <= 1
        assert [name for name in opened if name != "b"] == [f"r{number}" for number in range(5)]


async def test_pods_do_not_wait_when_limits_are_not_enforced():
    async with full_world() as world:
        policy = {"metadata": {"name": "p"}, "spec": {"namespaces": ["red"], "mode": "warn"}}
        world.server.create(POLICIES.name, "", policy)
        async with settling(world):
            await world.synced()
            await limited(world, 0)
            wait(world, "p")
            await world.until(lambda: not is_gated(world, "p"))
            await world.until(lambda: world.used("quota/c/red/q", GPUS) == 1)


async def test_pod_is_charged_once_when_removing_its_gate_is_retried(monkeypatch):
    monkeypatch.setattr(gate_opener, "RETRY_SECONDS", 0.1)
    async with full_world() as world, settling(world):
        await world.synced()
        world.cluster.refusing = ClusterUnavailable("the API server is down")
        wait(world, "p")
        await world.until(lambda: world.entry("p") is not None)
        world.cluster.refusing = None
        await world.until(lambda: not is_gated(world, "p"))
        await world.until(lambda: world.entry("p").committed is not None)
        assert sum(isinstance(told, Reserve) for told in world.asked) == 1


async def test_waiting_pod_is_forgotten_when_deleted():
    async with full_world() as world, settling(world):
        await world.synced()
        await limited(world, 0)
        wait(world, "p")
        await world.until(lambda: any(isinstance(told, Reserve) for told in world.asked))
        world.server.delete("pods", "red", "p")
        await limited(world, 9, "blue")
        world.server.update("resourcequotas", "red", "q", spec={"hard": {GPUS: "9"}})
        await world.until(lambda: world.limits("q") == {GPUS: 9})
        await asyncio.sleep(1.2)
        assert world.entry("p") is None


async def test_waiting_pod_is_forgotten_when_the_next_list_lacks_it():
    async with full_world(recount_seconds=0.5) as world, settling(world):
        await world.synced()
        await limited(world, 0)
        wait(world, "p")
        await world.until(lambda: any(isinstance(told, Reserve) for told in world.asked))
        assert world.server.objects.pop(("pods", "red", "p"))
        await asyncio.sleep(1.0)  # a list or two
        world.server.update("resourcequotas", "red", "q", spec={"hard": {GPUS: "9"}})
        await world.until(lambda: world.limits("q") == {GPUS: 9})
        await asyncio.sleep(1.2)  # a round, to give a wrong question its chance
        assert world.entry("p") is None


@pytest.mark.parametrize("held", [False, True])
async def test_waiting_pods_are_charged_by_a_recount_when_reserved(held):
    async with full_world() as world:
        world.cluster.refusing = ClusterUnavailable("the API server is down")
        if held:
            await world.reserve("p", "uid-p")
        world.server.create("resourcequotas", "red", quota_body("q", **{GPUS: "0"}))
        wait(world, "p")
        async with settling(world):
            await world.synced()
            assert (world.entry("p") is not None) is held
            if held:
                assert world.entry("p").committed.uid == "uid-p"


async def test_unwritten_change_admits_no_pod():
    async with full_world(settle_seconds=0.5) as world, settling(world):
        await world.synced()
        await limited(world, 0)
        version = int(wait(world, "p")["metadata"]["resourceVersion"])
        await world.reserve("p", "uid-p", base=version, demand={"nvidia.com/gpumem": 1})
        world.server.update("pods", "red", "p", status={"phase": "Pending"})
        await world.until(lambda: any(isinstance(told, Reserve) for told in world.asked))
        await world.until(lambda: world.entry("p") is None)
        assert is_gated(world, "p")
        assert world.used("quota/c/red/q", GPUS) == 0


async def test_waiting_pods_have_events_with_the_reason(monkeypatch):
    monkeypatch.setattr(waiting_events, "FIRST_SECONDS", 0.0)
    async with full_world() as world, settling(world):
        await world.synced()
        await limited(world, 2)
        world.server.create("pods", "red", pod_body("holder", gpu=2))
        await world.until(lambda: world.entry("holder") is not None)
        wait(world, "first", age=9, gpu=2)
        wait(world, "second", age=5, gpu=1)
        wait(world, "never", age=10, gpu=3)
        await world.until(lambda: len(world.cluster.events) >= 3)
        notes = {event.name: event.note for event in world.cluster.events}
        assert notes["first"].startswith("waits for room: ")
        assert notes["second"].startswith("waits behind pod first, which waits for room: ")
        assert "at most 2" in notes["never"], notes
        assert all(event.reason == "WaitingForQuota" for event in world.cluster.events)
        assert all(event.uid == f"uid-{event.name}" for event in world.cluster.events)
        world.server.delete("pods", "red", "holder")
        await world.until(lambda: not is_gated(world, "first"))
        await asyncio.sleep(2.5)  # some rounds, to give a needless event its chance
        assert len(world.cluster.events) == 3


async def test_pod_has_no_event_when_admitted_at_once():
    async with full_world() as world, settling(world):
        await world.synced()
        await limited(world, 1)
        wait(world, "p")
        await world.until(lambda: not is_gated(world, "p"))
        assert world.cluster.events == []


async def test_failed_events_are_counted_and_delay_no_gate(monkeypatch):
    monkeypatch.setattr(waiting_events, "FIRST_SECONDS", 0.0)
    async with full_world() as world, settling(world):
        await world.synced()
        await limited(world, 1)
        world.server.create("pods", "red", pod_body("holder"))
        await world.until(lambda: world.entry("holder") is not None)
        world.cluster.refusing = ClusterUnavailable("no answer")
        wait(world, "p")
        dropped = "events_dropped_total", "settlement", "refused"
        await world.until(lambda: world.counted[dropped] == 1)
        world.cluster.refusing = None
        world.server.delete("pods", "red", "holder")
        await world.until(lambda: not is_gated(world, "p"))
