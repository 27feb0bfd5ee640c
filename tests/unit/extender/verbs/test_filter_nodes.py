"""Filter returns the feasible nodes and the other nodes' reasons; prioritize scores nodes."""

import asyncio
from typing import Any

import msgspec
import pytest
from support.harness.extender_harness import CLUSTER, ModelServer, announcing, cards, pod, replica

from extender.fit.inventory_fit import FitPreferences
from extender.scheduler_api.extender_wire import (
    ExtenderArgs,
    ExtenderUnavailable,
    MetaPod,
    MetaVictims,
    PreemptionArgs,
    RawNodeList,
)
from extender.scheduler_extender import ExtenderSettings
from extender.verbs import filter_nodes, node_verdicts
from extender.verbs.filter_wait import AGAIN_SECONDS
from ledger.core.model.cards import HAMI, MIG, OWN, Card, Profile
from ledger.core.model.commands import End, RegisterCards, SetLimits
from ledger.kube.api.objects import ApiNode, ObjectMeta
from ledger.kube.requests.demand_rules import DemandRules
from ledger.kube.requests.gpu_type_annotation import CardType
from ledger.kube.vendors.vendors import select_vendors
from ledger.log.memory_log import MemoryStore

WANTS = pod("a", gpu=1, gpumem=8000)
NEVER = "NodeUnregistered"


async def test_every_node_is_answered_and_in_the_order_asked():
    async with replica() as service:
        await service.register("n1", cards("GPU-0"))
        await service.register("n2", cards("GPU-1", memory=4000))
        await service.register("n3", cards("GPU-2"))
        answer = await service.extender.filter(ExtenderArgs(WANTS, None, ["n3", "n2", "n0", "n1"]))
        assert answer.node_names == ["n3", "n1"]
        assert answer.nodes is None
        assert answer.failed_nodes == {}
        assert answer.failed_and_unresolvable_nodes == {
            "n2": "1/1 CardInsufficientMemory",
            "n0": NEVER,
        }


async def test_node_that_evictions_would_free_is_resolvable():
    server = ModelServer()
    holder, other = pod("a", gpu=1, gpumem=16_000), pod("b", gpu=1, gpumem=16_000)
    server.add(holder, other)
    async with replica(server=server) as service:
        await service.register("n1", cards("GPU-0"))
        await service.create(holder, other)
        assert await service.bind(holder, "n1") == ""
        answer = await service.extender.filter(ExtenderArgs(other, None, ["n1", "n9"]))
        assert answer.failed_nodes == {"n1": "1/1 CardInsufficientMemory"}
        assert answer.failed_and_unresolvable_nodes == {"n9": NEVER}


async def test_a_pod_that_wants_no_card_passes_everywhere():
    async with replica() as service:
        answer = await service.extender.filter(ExtenderArgs(pod("a"), None, ["n1", "n2"]))
        assert answer.node_names == ["n1", "n2"]
        scores = await service.extender.prioritize(ExtenderArgs(pod("a"), None, ["n1"]))
        assert [(entry.host, entry.score) for entry in scores] == [("n1", 0)]


async def test_cards_that_nodes_only_count_are_left_to_the_scheduler(
    monkeypatch: pytest.MonkeyPatch,
):
    """No node announces single cards of such a vendor, so the extender has none of them."""
    rules = DemandRules(vendors=select_vendors(["nvidia", "metax"]))
    monkeypatch.setattr("support.harness.extender_harness.RULES", rules)
    both = pod("a", gpu=1, gpumem=8000)
    [container] = both.spec.containers or []
    assert container.resources is not None
    assert container.resources.limits is not None
    container.resources.limits["metax-tech.com/gpu"] = "1"
    async with replica() as service:
        await service.register("n1", cards("GPU-0"))
        answer = await service.extender.filter(ExtenderArgs(both, None, ["n1", "n2"]))
        assert answer.node_names == ["n1"]
        assert answer.failed_and_unresolvable_nodes == {"n2": NEVER}


async def test_a_request_that_makes_no_sense_fits_nowhere_and_no_eviction_helps():
    async with replica() as service:
        await service.register("n1", cards("GPU-0"))
        gpu_pod = pod("a", {"hami.io/node-scheduler-policy": "random"}, gpu=1)
        answer = await service.extender.filter(ExtenderArgs(gpu_pod, None, ["n1"]))
        [reason] = answer.failed_and_unresolvable_nodes.values()
        assert "random" in reason


async def test_nodes_in_full_are_answered_in_full_as_they_came():
    async with replica() as service:
        await service.register("n1", cards("GPU-0"))
        raw = [
            msgspec.Raw(b'{"metadata":{"name":"n1"},"odd":  [1, 2]}'),
            msgspec.Raw(b'{"metadata":{"name":"n2"}}'),
        ]
        answer = await service.extender.filter(ExtenderArgs(WANTS, RawNodeList({}, raw), None))
        assert answer.node_names is None
        assert answer.nodes is not None
        assert [bytes(node) for node in answer.nodes.items or ()] == [bytes(raw[0])]
        assert answer.failed_and_unresolvable_nodes == {"n2": NEVER}


async def test_unknown_nodes_are_judged_by_their_annotations():
    async with replica() as service:
        await service.register("n1", cards("GPU-0"))
        nodes = [
            announcing("new", *cards("GPU-7")),
            announcing("small", *cards("GPU-8", memory=4000)),
        ]
        raw = [msgspec.Raw(msgspec.json.encode({"metadata": node})) for node in nodes]
        args = ExtenderArgs(
            WANTS, RawNodeList({}, [*raw, msgspec.Raw(b'{"metadata":{"name":"n1"}}')]), None
        )
        answer = await service.extender.filter(args)
        assert answer.nodes is not None
        assert len(answer.nodes.items or ()) == 2
        assert answer.failed_and_unresolvable_nodes == {"small": "1/1 CardInsufficientMemory"}
        scores = {entry.host: entry.score for entry in await service.extender.prioritize(args)}
        assert scores == {"new": 10, "small": 0, "n1": 10}
        assert sorted(service.inventory.rows) == ["n1"]


@pytest.mark.parametrize(("policy", "best"), [("binpack", "n1"), ("spread", "n2")])
async def test_the_best_node_has_ten_by_policy(policy: str, best: str):
    server = ModelServer()
    first, second = pod("a", gpu=1, gpumem=8000), pod("b", gpu=1, gpumem=8000)
    server.add(first, second)
    settings = ExtenderSettings(FitPreferences(node_policy=policy))
    async with replica(server=server, settings=settings) as service:
        await service.register("n1", cards("GPU-0"))
        await service.register("n2", cards("GPU-1"))
        await service.create(first, second)
        assert await service.bind(first, "n1") == ""
        names = await service.places(second, "n1", "n2", "n3")
        scores = await service.extender.prioritize(ExtenderArgs(second, None, names))
        assert {entry.host: entry.score for entry in scores} == {
            best: 10,
            ({*names} - {best}).pop(): 0,
        }


async def test_cards_of_a_scored_pod_are_assumed_taken_for_the_next_pod():
    pods = [pod(name, gpu=1, gpumem=16_000) for name in ("a", "b")]
    async with replica() as service:
        await service.register("n1", cards("GPU-0"))
        await service.register("n2", cards("GPU-1"))
        names = await service.places(pods[0], "n1", "n2")
        await service.extender.prioritize(ExtenderArgs(pods[0], None, names))
        assert len(await service.places(pods[0], "n1", "n2")) == 2
        assert len(await service.places(pods[1], "n1", "n2")) == 1


async def test_a_pod_that_fits_on_one_node_is_on_its_way_there():
    pods = [pod(name, gpu=1, gpumem=16_000) for name in ("a", "b")]
    async with replica() as service:
        await service.register("n1", cards("GPU-0"))
        assert await service.places(pods[0], "n1") == ["n1"]
        assert await service.places(pods[1], "n1") == []


async def test_until_the_cards_are_known_nothing_is_answered(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("extender.inventory.inventory_loading.READY_SECONDS", 0.05)
    async with replica() as service:
        service.inventory.loaded = False
        answer = await service.extender.filter(ExtenderArgs(WANTS, None, ["n1"]))
        assert "not open yet" in answer.error
        with pytest.raises(ExtenderUnavailable):
            await service.extender.prioritize(ExtenderArgs(WANTS, None, ["n1"]))
        assert "not open yet" in await service.bind(WANTS, "n1")


async def test_pod_that_fits_nowhere_gets_reasons_in_the_answer_and_no_event():
    server = ModelServer()
    async with replica(server=server) as service:
        await service.register("n1", cards("GPU-0", memory=4000))
        answer = await service.extender.filter(ExtenderArgs(WANTS, None, ["n1", "n2"]))
        assert answer.failed_and_unresolvable_nodes == {
            "n1": "1/1 CardInsufficientMemory",
            "n2": NEVER,
        }
        await asyncio.sleep(0.05)
        assert server.events == []


async def test_of_the_schedulers_victims_those_count_that_leave_enough_room():
    server = ModelServer()
    holders = [pod(f"h{number}", gpu=1, gpumem=16_000) for number in (1, 2)]
    wants = pod("w", gpu=1, gpumem=16_000)
    server.add(*holders)
    async with replica(server=server) as service:
        await service.register("n1", cards("GPU-1"))
        await service.register("n2", cards("GPU-2"))
        await service.create(*holders, wants)
        for number, holder in enumerate(holders, 1):
            assert await service.bind(holder, f"n{number}") == ""
        victims = {
            "n1": MetaVictims([MetaPod("uid-h1")], 1),
            "n2": MetaVictims([MetaPod("uid-other")]),
            "n3": MetaVictims([]),
        }
        answer = await service.extender.preempt(PreemptionArgs(wants, None, victims))
        assert answer.node_name_to_meta_victims == {"n1": victims["n1"]}
        used = service.inventory.arrays.used_memory[service.inventory.rows["n1"]].max()
        assert used == 16_000


async def test_removed_node_fits_no_pod():
    async with replica() as service:
        await service.register("n1", cards("GPU-0"))
        assert await service.places(WANTS, "n1") == ["n1"]
        command = RegisterCards("east/n1", "gpuledger", ())
        await service.tell(command)
        assert await service.places(pod("b", gpu=1), "n1") == []


QUOTA = "quota/east/team/main"
PERCENT_100 = {"gpumem-percentage": 100}
TYPED = DemandRules(types=(CardType("t4"),))


@pytest.mark.parametrize("cores", [{}, {"gpucores": 100}], ids=["a part", "the whole"])
async def test_card_does_not_fit_when_its_percentage_exceeds_a_quota(
    cores: dict[str, int],
):
    gpu_pod = pod("a", gpu=1, **PERCENT_100, **cores)
    async with replica() as service:
        await service.register("n1", cards("GPU-0", memory=10_000))
        await service.register("n2", cards("GPU-1", memory=10_001))
        await service.create(gpu_pod)
        assert await service.places(gpu_pod, "n1", "n2") == ["n1", "n2"], "nothing bounds it"
        await service.tell(SetLimits(QUOTA, ("east/team",), {"limits.nvidia.com/gpumem": 10_000}))
        answer = await service.extender.filter(ExtenderArgs(gpu_pod, None, ["n1", "n2"]))
        assert answer.node_names == ["n1"]
        assert answer.failed_and_unresolvable_nodes == {"n2": "1/1 ResourceQuotaNotFit"}


async def test_a_quota_bounds_all_containers_of_a_pod_together():
    gpu_pod = pod("a", gpu=2, **{"gpumem-percentage": 50})
    async with replica() as service:
        await service.register("n1", cards("GPU-0", "GPU-1", memory=10_000))
        await service.register("n2", cards("GPU-2", "GPU-3", memory=12_000))
        await service.create(gpu_pod)
        await service.tell(SetLimits(QUOTA, ("east/team",), {"limits.nvidia.com/gpumem": 10_000}))
        assert await service.places(gpu_pod, "n1", "n2") == ["n1"]


async def test_memory_that_is_known_was_charged_before_and_is_not_bounded_again():
    async with replica() as service:
        await service.register("n1", cards("GPU-0"))
        await service.create(WANTS)
        await service.tell(SetLimits(QUOTA, ("east/team",), {"limits.nvidia.com/gpumem": 10}))
        assert await service.places(WANTS, "n1") == ["n1"]


async def test_a_quota_of_one_type_bounds_pods_of_this_type(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("support.harness.extender_harness.RULES", TYPED)
    annotations = {"nvidia.com/use-gputype": "T4"}
    typed = pod("a", annotations, gpu=1, **PERCENT_100)
    other = pod("b", gpu=1, **PERCENT_100)
    async with replica() as service:
        await service.register("n1", cards("GPU-0"))
        await service.create(typed, other)
        limits = {"limits.t4.nvidia.com/gpumem": 10_000}
        await service.tell(SetLimits(QUOTA, ("east/team",), limits))
        assert await service.places(typed, "n1") == []
        assert await service.places(other, "n1") == ["n1"]


@pytest.mark.parametrize(
    ("keeper", "scores"),
    [(OWN, {"n1": 10, "n2": 0, "n3": 0}), (HAMI, {"n1": 4, "n2": 10, "n3": 10})],
)
async def test_node_where_the_pod_would_wait_comes_after_all_others(
    keeper: str, scores: dict[str, int]
):
    server, holder, other = ModelServer(), pod("a", gpu=1), pod("b", gpu=1, gpumem=1000)
    for name in ("n1", "n2", "n3"):
        server.nodes[name] = ApiNode(ObjectMeta(name=name, resource_version="5"))
    server.add(holder, other)
    async with replica(server=server) as service:
        for name in ("n1", "n2", "n3"):
            await service.register(name, cards(f"GPU-{name}a", f"GPU-{name}b"), keeper)
        await service.create(holder, other)
        assert await service.bind(holder, "n1") == ""
        names = await service.places(other, "n1", "n2", "n3")
        assert {
            each.host: each.score
            for each in await service.extender.prioritize(ExtenderArgs(other, None, names))
        } == scores
        only = await service.extender.prioritize(ExtenderArgs(other, None, ["n1"]))
        assert [each.score for each in only] == [10], "there is no other to go to"


async def test_node_with_an_assumed_pod_comes_later_when_it_would_wait():
    pods = [pod(name, gpu=1, gpumem=1000) for name in ("a", "b", "c")]
    best = []
    async with replica() as service:
        for name in ("n1", "n2"):
            await service.register(name, cards(f"GPU-{name}"), HAMI)
        for gpu_pod in pods:
            names = await service.places(gpu_pod, "n1", "n2")
            scored = await service.extender.prioritize(ExtenderArgs(gpu_pod, None, names))
            best.append({each.host: each.score for each in scored})
    assert best == [{"n1": 10, "n2": 10}, {"n1": 4, "n2": 10}, {"n1": 10, "n2": 10}]


async def test_instance_larger_than_the_request_must_fit_the_quota():
    gpu_pod = pod("a", gpu=1, gpumem=5000)
    profile = Profile("1g.10gb", 10_000, 14, 1, ((0, 1),))
    async with replica() as service:
        await service.register(
            "n1", (Card("GPU-0", 0, "A100", 80_000, 100, 7, mode=MIG, profiles=(profile,)),)
        )
        await service.create(gpu_pod)
        await service.tell(SetLimits(QUOTA, ("east/team",), {"limits.nvidia.com/gpumem": 9_999}))
        answer = await service.extender.filter(ExtenderArgs(gpu_pod, None, ["n1"]))
        assert answer.failed_and_unresolvable_nodes == {"n1": "1/1 ResourceQuotaNotFit"}
        await service.tell(SetLimits(QUOTA, ("east/team",), {"limits.nvidia.com/gpumem": 10_000}))
        assert await service.places(gpu_pod, "n1") == ["n1"]


async def test_nodes_are_scored_when_another_extender_has_filtered_them():
    store = MemoryStore()
    settings = ExtenderSettings(FitPreferences(node_policy="binpack"))
    async with (
        replica(store, settings=settings) as first,
        replica(store, settings=settings) as other,
    ):
        await first.register("n1", cards("GPU-1", memory=32_000))
        await first.register("n2", cards("GPU-2", memory=16_000))
        await first.create(WANTS)
        await other.caught_up(first)
        both = ExtenderArgs(WANTS, None, ["n1", "n2"])
        await first.extender.filter(both)
        assert [each.score for each in await first.extender.prioritize(both)] == [0, 10]
        await first.register("n1", cards("GPU-1", memory=10_000))
        await other.caught_up(first)
        await other.extender.filter(both)
        assert [each.score for each in await first.extender.prioritize(both)] == [10, 0]


async def test_filter_waits_for_records_when_asked_about_a_pod_again():
    server = ModelServer()
    first, late = pod("a", gpu=1, gpumem=16_000), pod("b", gpu=1, gpumem=16_000)
    server.add(first, late)
    async with replica(server=server) as service:
        await service.register("n1", cards("GPU-0"))
        await service.create(first, late)
        assert await service.bind(first, "n1") == ""
        assert await service.places(late, "n1") == []
        asked = asyncio.create_task(service.places(late, "n1"))
        await asyncio.sleep(0)
        meta = first.metadata
        namespace = f"{CLUSTER}/{meta.namespace}"
        await service.tell(End(namespace, f"pods/{meta.name}", meta.uid, 9, "deleted"))
        assert await asked == ["n1"]


async def test_of_many_pods_that_are_asked_about_again_only_the_first_waits():
    async with replica() as service:
        await service.register("n1", cards("GPU-0", memory=1_000))
        many = [pod(f"p-{number}", gpu=1, gpumem=8_000) for number in range(20)]
        async with asyncio.timeout(10 * AGAIN_SECONDS):
            for gpu_pod in many * 2:
                assert await service.places(gpu_pod, "n1") == []


async def test_who_waits_does_not_look_at_all_nodes_after_every_record(
    monkeypatch: pytest.MonkeyPatch,
):
    looked: list[int] = []
    filtered = node_verdicts.filtered

    def count(*arguments: Any) -> Any:
        looked.append(1)
        return filtered(*arguments)

    monkeypatch.setattr(node_verdicts, "filtered", count)
    late = pod("b", gpu=1, gpumem=8_000)
    async with replica() as service:
        await service.register("n1", cards("GPU-0", memory=1_000))
        assert await service.places(late, "n1") == []
        asked = asyncio.create_task(service.places(late, "n1"))
        for number in range(20):
            await service.create(pod(f"p-{number}"))
        assert await asked == []
    assert len(looked) <= 2 + AGAIN_SECONDS / filter_nodes.RETRY_SECONDS + 1
