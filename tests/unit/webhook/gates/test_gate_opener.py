"""Pods behind the scheduling gate, and their admission."""

import asyncio
from datetime import UTC, datetime, timedelta

import pytest
from support.fakes.apiserver import pod_body, quota_body
from support.harness.settlement import World, full_world, settling

from ledger.core.model.commands import Reserve
from ledger.kube.api.api_resources import POLICIES
from ledger.kube.api.errors import ClusterUnavailable
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


def wait(one: World, name: str, age: int = 0, gpu: int = 1, namespace: str = "red") -> dict:
    return one.server.create("pods", namespace, waiting_pod(name, age, gpu), f"uid-{name}")


def is_gated(one: World, name: str, namespace: str = "red") -> bool:
    found = one.server.objects["pods", namespace, name]["spec"]["schedulingGates"]
    return {"name": GATE} in found


async def limited(one: World, gpu: int, namespace: str = "red") -> None:
    one.server.create("resourcequotas", namespace, quota_body("q", **{GPUS: str(gpu)}))
    account = f"quota/c/{namespace}/q"
    await one.until(lambda: account in one.state.accounts)


async def test_gate_is_removed_when_the_demand_is_reserved():
    async with full_world() as one, settling(one):
        await one.synced()
        await limited(one, 1)
        wait(one, "p")
        await one.until(lambda: not is_gated(one, "p"))
        await one.until(lambda: one.entry("p").committed is not None)
        assert {"name": "other"} in one.server.objects["pods", "red", "p"]["spec"][
            "schedulingGates"
        ]
        assert one.drift == {}


async def test_waiting_pod_is_charged_nothing_until_amounts_are_freed():
    async with full_world() as one, settling(one):
        await one.synced()
        await limited(one, 1)
        one.server.create("pods", "red", pod_body("first"))
        await one.until(lambda: one.entry("first") is not None)
        wait(one, "p")
        await one.until(lambda: any(isinstance(told, Reserve) for told in one.asked))
        one.server.update("pods", "red", "p", status={"phase": "Pending"})
        assert one.entry("p") is None
        assert is_gated(one, "p")
        one.server.delete("pods", "red", "first")
        await one.until(lambda: not is_gated(one, "p"))


async def test_number_and_age_of_waiting_pods_are_reported():
    async with full_world() as one, settling(one):
        await one.synced()
        assert (one.settlement.waiting, one.settlement.waiting_seconds_max) == (0, 0.0)
        await limited(one, 0)
        wait(one, "young", age=60)
        wait(one, "old", age=600)
        await one.until(lambda: one.settlement.waiting == 2)
        since_begin = one.now / 1e6 - BEGIN.timestamp()
        assert one.settlement.waiting_seconds_max == since_begin + 600
    assert (one.settlement.waiting, one.settlement.waiting_seconds_max) == (0, 0.0)


async def test_waiting_pod_is_not_tried_while_nothing_changes():
    async with full_world() as one, settling(one):
        await one.synced()
        await limited(one, 1)
        one.server.create("pods", "red", pod_body("first"))
        await one.until(lambda: one.entry("first") is not None)
        wait(one, "p")
        await one.until(lambda: any(isinstance(told, Reserve) for told in one.asked))
        await asyncio.sleep(2.5)  # some rounds, to give a needless question its chance
        assert sum(isinstance(told, Reserve) for told in one.asked) == 1


async def test_waiting_pod_is_tried_again_after_a_while(monkeypatch):
    monkeypatch.setattr(gate_queue, "SLOW_SECONDS", 0.5)
    async with full_world() as one, settling(one):
        await one.synced()
        await limited(one, 0)
        wait(one, "p", gpu=1)
        await one.until(lambda: sum(isinstance(told, Reserve) for told in one.asked) > 1)


async def test_one_denial_is_recorded_for_each_waiting_pod(monkeypatch):
    monkeypatch.setattr(gate_queue, "SLOW_SECONDS", 0.05)
    store = MemoryStore()
    async with full_world(store=store) as one, settling(one):
        await one.synced()
        await limited(one, 0)
        for name in ("p", "q"):
            wait(one, name)
        await one.until(lambda: sum(isinstance(told, Reserve) for told in one.asked) > 8)
        async with asyncio.timeout(30):
            while len(store.denials) < 2:
                await store.news()
        kept = [denial_log.decode(denial.payload).uid for denial in store.denials]
        assert sorted(kept) == ["uid-p", "uid-q"]
        one.server.update("resourcequotas", "red", "q", spec={"hard": {GPUS: "2"}})
        await one.until(lambda: not is_gated(one, "p") and not is_gated(one, "q"))


async def test_oldest_pod_of_a_namespace_is_admitted_first():
    async with full_world() as one:
        for name, age, gpu in (("a-young", 1, 1), ("z-old", 9, 2)):
            wait(one, name, age, gpu)
        one.server.create("resourcequotas", "red", quota_body("q", **{GPUS: "2"}))
        one.server.create("pods", "red", pod_body("first"))
        async with settling(one):
            await one.synced()
            await one.until(lambda: any(isinstance(told, Reserve) for told in one.asked))
            await asyncio.sleep(1.2)
            assert is_gated(one, "a-young")
            one.server.delete("pods", "red", "first")
            await one.until(lambda: not is_gated(one, "z-old"))
            assert is_gated(one, "a-young")


async def test_pod_that_never_fits_does_not_block_the_others():
    async with full_world() as one:
        for name, age, gpu in (("a-young", 1, 1), ("z-old", 9, 5)):
            wait(one, name, age, gpu)
        one.server.create("resourcequotas", "red", quota_body("q", **{GPUS: "2"}))
        async with settling(one):
            await one.until(lambda: not is_gated(one, "a-young"))
            assert is_gated(one, "z-old")
            raised = {"hard": {GPUS: "6"}}
            one.server.update("resourcequotas", "red", "q", spec=raised)
            await one.until(lambda: not is_gated(one, "z-old"))


@pytest.mark.parametrize("tries", [1, gate_opener.TRIES_MAX])
async def test_namespaces_take_turns(tries, monkeypatch):
    monkeypatch.setattr(gate_opener, "TRIES_MAX", tries)
    async with full_world() as one:
        for number in range(5):
            wait(one, f"r{number}", 100 - number)
        wait(one, "b", namespace="blue")
        async with settling(one):
            await one.until(lambda: not is_gated(one, "b", "blue"))
            await one.until(lambda: not is_gated(one, "r4"))
        opened = [write[2] for write in one.cluster.writes if write[0] == "gate"]
        assert opened.index("b") <= 1
        assert [name for name in opened if name != "b"] == [f"r{number}" for number in range(5)]


async def test_pods_do_not_wait_when_limits_are_not_enforced():
    async with full_world() as one:
        policy = {"metadata": {"name": "p"}, "spec": {"namespaces": ["red"], "mode": "warn"}}
        one.server.create(POLICIES.name, "", policy)
        async with settling(one):
            await one.synced()
            await limited(one, 0)
            wait(one, "p")
            await one.until(lambda: not is_gated(one, "p"))
            await one.until(lambda: one.used("quota/c/red/q", GPUS) == 1)


async def test_pod_is_charged_once_when_removing_its_gate_is_retried(monkeypatch):
    monkeypatch.setattr(gate_opener, "RETRY_SECONDS", 0.1)
    async with full_world() as one, settling(one):
        await one.synced()
        one.cluster.refusing = ClusterUnavailable("the API server is down")
        wait(one, "p")
        await one.until(lambda: one.entry("p") is not None)
        one.cluster.refusing = None
        await one.until(lambda: not is_gated(one, "p"))
        await one.until(lambda: one.entry("p").committed is not None)
        assert sum(isinstance(told, Reserve) for told in one.asked) == 1


async def test_waiting_pod_is_forgotten_when_deleted():
    async with full_world() as one, settling(one):
        await one.synced()
        await limited(one, 0)
        wait(one, "p")
        await one.until(lambda: any(isinstance(told, Reserve) for told in one.asked))
        one.server.delete("pods", "red", "p")
        await limited(one, 9, "blue")
        one.server.update("resourcequotas", "red", "q", spec={"hard": {GPUS: "9"}})
        await one.until(lambda: one.limits("q") == {GPUS: 9})
        await asyncio.sleep(1.2)
        assert one.entry("p") is None


async def test_waiting_pod_is_forgotten_when_the_next_list_lacks_it():
    async with full_world(recount_seconds=0.5) as one, settling(one):
        await one.synced()
        await limited(one, 0)
        wait(one, "p")
        await one.until(lambda: any(isinstance(told, Reserve) for told in one.asked))
        assert one.server.objects.pop(("pods", "red", "p"))
        await asyncio.sleep(1.0)  # a list or two
        one.server.update("resourcequotas", "red", "q", spec={"hard": {GPUS: "9"}})
        await one.until(lambda: one.limits("q") == {GPUS: 9})
        await asyncio.sleep(1.2)  # a round, to give a wrong question its chance
        assert one.entry("p") is None


@pytest.mark.parametrize("held", [False, True])
async def test_waiting_pods_are_charged_by_a_recount_when_reserved(held):
    async with full_world() as one:
        one.cluster.refusing = ClusterUnavailable("the API server is down")
        if held:
            await one.reserve("p", "uid-p")
        one.server.create("resourcequotas", "red", quota_body("q", **{GPUS: "0"}))
        wait(one, "p")
        async with settling(one):
            await one.synced()
            assert (one.entry("p") is not None) is held
            if held:
                assert one.entry("p").committed.uid == "uid-p"


async def test_unwritten_change_admits_no_pod():
    async with full_world(settle_seconds=0.5) as one, settling(one):
        await one.synced()
        await limited(one, 0)
        version = int(wait(one, "p")["metadata"]["resourceVersion"])
        await one.reserve("p", "uid-p", base=version, demand={"nvidia.com/gpumem": 1})
        one.server.update("pods", "red", "p", status={"phase": "Pending"})
        await one.until(lambda: any(isinstance(told, Reserve) for told in one.asked))
        await one.until(lambda: one.entry("p") is None)
        assert is_gated(one, "p")
        assert one.used("quota/c/red/q", GPUS) == 0


async def test_waiting_pods_have_events_with_the_reason(monkeypatch):
    monkeypatch.setattr(waiting_events, "FIRST_SECONDS", 0.0)
    async with full_world() as one, settling(one):
        await one.synced()
        await limited(one, 2)
        one.server.create("pods", "red", pod_body("holder", gpu=2))
        await one.until(lambda: one.entry("holder") is not None)
        wait(one, "first", age=9, gpu=2)
        wait(one, "second", age=5, gpu=1)
        wait(one, "never", age=10, gpu=3)
        await one.until(lambda: len(one.cluster.events) >= 3)
        notes = {event.name: event.note for event in one.cluster.events}
        assert notes["first"].startswith("waits for room: ")
        assert notes["second"].startswith("waits behind pod first, which waits for room: ")
        assert "at most 2" in notes["never"], notes
        assert all(event.reason == "WaitingForQuota" for event in one.cluster.events)
        assert all(event.uid == f"uid-{event.name}" for event in one.cluster.events)
        one.server.delete("pods", "red", "holder")
        await one.until(lambda: not is_gated(one, "first"))
        await asyncio.sleep(2.5)  # some rounds, to give a needless event its chance
        assert len(one.cluster.events) == 3


async def test_pod_has_no_event_when_admitted_at_once():
    async with full_world() as one, settling(one):
        await one.synced()
        await limited(one, 1)
        wait(one, "p")
        await one.until(lambda: not is_gated(one, "p"))
        assert one.cluster.events == []


async def test_failed_events_are_counted_and_delay_no_gate(monkeypatch):
    monkeypatch.setattr(waiting_events, "FIRST_SECONDS", 0.0)
    async with full_world() as one, settling(one):
        await one.synced()
        await limited(one, 1)
        one.server.create("pods", "red", pod_body("holder"))
        await one.until(lambda: one.entry("holder") is not None)
        one.cluster.refusing = ClusterUnavailable("no answer")
        wait(one, "p")
        dropped = "events_dropped_total", "settlement", "refused"
        await one.until(lambda: one.counted[dropped] == 1)
        one.cluster.refusing = None
        one.server.delete("pods", "red", "holder")
        await one.until(lambda: not is_gated(one, "p"))
