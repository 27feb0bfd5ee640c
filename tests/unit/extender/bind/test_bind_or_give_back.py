"""A pod gets its cards and its Binding, or neither, for every answer of the API server."""

import asyncio
from typing import Any

import pytest
from support.harness.extender_harness import CLUSTER, ModelServer, Stored, cards, held, pod, replica

from extender.bind.bind_or_give_back import LATE, SEND_SECONDS
from extender.bind.placement_takeover import TAKE_UP_SECONDS
from extender.scheduler_extender import ExtenderSettings
from ledger.core.model import commands
from ledger.core.model.cards import HAMI, Stage
from ledger.kube.api import cluster_errors as kube_errors
from ledger.kube.api.objects import ObjectMeta
from ledger.log.memory_log import MemoryStore

QUICK = ExtenderSettings(bind_wait_seconds=0.2)
PATIENT = ExtenderSettings(bind_wait_seconds=5.0)
UNPLACED = commands.Unplace(f"{CLUSTER}/team", "pods/a", "uid-a", f"{CLUSTER}/n1", "unbound")
"""The command of settlement once no Binding of the pod can come any more."""
NO_ANSWER = kube_errors.ClusterUnavailable("no answer in time")
REFUSALS = [
    kube_errors.Rejected("denied by a webhook", 422),
    kube_errors.VersionConflict("someone was faster"),
    kube_errors.NotFound("no such pod"),
    kube_errors.Forbidden("not permitted"),
]


async def test_a_pod_is_bound_with_its_annotations_in_one_write():
    server, gpu_pod = ModelServer(), pod("a", gpu=1, gpumem=8000)
    server.add(gpu_pod)
    async with replica(server=server) as service:
        await service.register("n1", cards("GPU-0", "GPU-1"))
        await service.create(gpu_pod)
        assert await service.bind(gpu_pod, "n1") == ""
        [binding] = server.bindings
        [uuid] = service.uuids("a")
        assert binding.annotations["hami.io/vgpu-node"] == "n1"
        assert binding.annotations["hami.io/vgpu-devices-allocated"] == f"{uuid},NVIDIA,8000,0:;"
        assert binding.labels == {"hami.io/vgpu-node": "n1"}
        assert (binding.uid, binding.version) == ("uid-a", gpu_pod.metadata.resource_version)
        assert service.counted[-1] == ("extender_answers_total", "bind", "bound")


async def test_a_pod_that_was_filtered_is_not_read_again():
    server, gpu_pod = ModelServer(), pod("a", gpu=1, gpumem=8000)
    async with replica(server=server) as service:
        await service.register("n1", cards("GPU-0"))
        await service.create(gpu_pod)
        await service.places(gpu_pod, "n1")
        server.read_fates.append(kube_errors.ClusterUnavailable("must not be asked"))
        server.add(gpu_pod)
        assert await service.bind(gpu_pod, "n1") == ""
        assert len(server.read_fates) == 1


@pytest.mark.parametrize("refusal", REFUSALS, ids=lambda error: type(error).__name__)
async def test_a_refused_binding_gives_the_cards_back(refusal: Exception):
    server, gpu_pod = ModelServer(), pod("a", gpu=1, gpumem=8000)
    server.add(gpu_pod)
    server.fates.append(refusal)
    async with replica(server=server) as service:
        await service.register("n1", cards("GPU-0"))
        await service.create(gpu_pod)
        assert str(refusal) in await service.bind(gpu_pod, "n1")
        assert service.placed("a") is None
        assert await service.bind(gpu_pod, "n1") == ""


async def test_a_pod_that_is_gone_gets_no_cards():
    server, gpu_pod = ModelServer(), pod("a", gpu=1, gpumem=8000)
    async with replica(server=server) as service:
        await service.register("n1", cards("GPU-0"))
        await service.create(gpu_pod)
        await service.places(gpu_pod, "n1")
        assert "gone" in await service.bind(gpu_pod, "n1")
        assert service.placed("a") is None


async def test_another_pod_of_that_name_is_not_bound_in_its_place():
    server, gpu_pod = ModelServer(), pod("a", gpu=1, gpumem=8000)
    server.add(pod("a", gpu=1, gpumem=8000))
    meta = server.pods["a"].metadata
    server.pods["a"] = type(gpu_pod)(
        ObjectMeta(name="a", namespace=meta.namespace, uid="uid-other"), gpu_pod.spec
    )
    async with replica(server=server) as service:
        await service.register("n1", cards("GPU-0"))
        await service.create(gpu_pod)
        await service.places(gpu_pod, "n1")
        assert "gone" in await service.bind(gpu_pod, "n1")
        assert service.placed("a") is None


async def test_an_unclear_binding_that_was_stored_is_done():
    server, gpu_pod = ModelServer(), pod("a", gpu=1, gpumem=8000)
    server.add(gpu_pod)
    server.fates.append(Stored())
    async with replica(server=server) as service:
        await service.register("n1", cards("GPU-0"))
        await service.create(gpu_pod)
        assert await service.bind(gpu_pod, "n1") == ""
        assert service.placed("a") is not None


async def test_an_unclear_binding_to_another_node_gives_the_cards_back():
    server, gpu_pod = ModelServer(), pod("a", gpu=1, gpumem=8000)
    server.add(gpu_pod)
    server.fates.append(Stored(node="n2"))
    async with replica(server=server) as service:
        await service.register("n1", cards("GPU-0"))
        await service.create(gpu_pod)
        assert "bound to n2" in await service.bind(gpu_pod, "n1")
        assert service.placed("a") is None


async def test_unclear_binding_keeps_its_cards_for_the_next_try():
    server, gpu_pod = ModelServer(), pod("a", gpu=1, gpumem=8000)
    server.add(gpu_pod)
    server.fates.append(NO_ANSWER)
    async with replica(server=server) as service:
        await service.register("n1", cards("GPU-0", "GPU-1"))
        await service.register("n2", cards("GPU-2"))
        await service.create(gpu_pod)
        assert "no answer in time" in await service.bind(gpu_pod, "n1")
        kept = service.uuids("a")
        assert kept
        assert await service.places(gpu_pod, "n1", "n2") == ["n1"]
        assert await service.bind(gpu_pod, "n1") == ""
        assert service.uuids("a") == kept


@pytest.mark.parametrize("answer", [NO_ANSWER, kube_errors.VersionConflict("already assigned")])
async def test_nothing_is_undone_while_the_pod_cannot_be_read(
    monkeypatch: pytest.MonkeyPatch, answer: Exception
):
    monkeypatch.setattr("extender.bind.binding_writer.PAUSE_SECONDS", 0.001)
    server, gpu_pod = ModelServer(), pod("a", gpu=1, gpumem=8000)
    server.add(gpu_pod)
    server.fates.append(answer)
    async with replica(server=server) as service:
        await service.register("n1", cards("GPU-0"))
        await service.create(gpu_pod)
        await service.places(gpu_pod, "n1")
        server.read_fates.extend([kube_errors.ClusterUnavailable("unreachable")] * 3)
        said = await service.bind(gpu_pod, "n1")
        assert "is not known" in said
        assert "unreachable" in said
        assert service.placed("a") is not None


async def test_bind_that_crashed_after_placing_starts_over_once_settled():
    store, server, gpu_pod = MemoryStore(), ModelServer(), pod("a", gpu=1, gpumem=8000)
    server.add(gpu_pod)
    async with replica(store, server) as first:
        await first.register("n1", cards("GPU-0", "GPU-1"))
        await first.register("n2", cards("GPU-2"))
        await first.create(gpu_pod)
        async with held(server, first, gpu_pod):
            pass
    async with replica(store, server, QUICK) as second:
        assert await second.places(gpu_pod, "n2", "n1") == ["n1"]
        assert "may be under way" in await second.bind(gpu_pod, "n1")
        assert server.bindings == [], "the first one's may still come"
        await second.tell(UNPLACED)
        assert await second.bind(gpu_pod, "n2") == ""
        assert second.uuids("a") == ["GPU-2"]


async def test_one_of_two_binds_of_one_pod_sends_a_binding():
    store, server, gpu_pod = MemoryStore(), ModelServer(), pod("a", gpu=1, gpumem=8000)
    server.add(gpu_pod)
    async with replica(store, server) as left, replica(store, server, PATIENT) as right:
        await left.register("n1", cards("GPU-0"))
        await left.create(gpu_pod)
        await right.caught_up(left)
        async with held(server, left, gpu_pod) as bind:
            await right.caught_up(left)
            waiting = asyncio.create_task(right.bind(gpu_pod, "n1"))
            for _ in range(20):
                await asyncio.sleep(0)
            bind.go_on.set()
            assert await bind.task == ""
        assert not waiting.done()
        await left.tell(commands.Advance(f"{CLUSTER}/team", "pods/a", "uid-a", Stage.BOUND))
        assert await waiting == ""
        assert len(server.bindings) == 1


@pytest.mark.parametrize("lagging", [False, True])
async def test_no_binding_is_sent_for_cards_that_another_bind_gives_back(lagging: bool):
    store, server, gpu_pod = MemoryStore(), ModelServer(), pod("a", gpu=1, gpumem=8000)
    server.add(gpu_pod)
    async with replica(store, server) as left, replica(store, server, PATIENT) as right:
        await left.register("n1", cards("GPU-0", "GPU-1"))
        await left.create(gpu_pod)
        await right.caught_up(left)
        server.fates.append(kube_errors.Forbidden("not permitted"))
        async with held(server, left, gpu_pod) as bind:
            if not lagging:
                await right.caught_up(left)
            waiting = asyncio.create_task(right.bind(gpu_pod, "n1"))
            for _ in range(20):
                await asyncio.sleep(0)
            server.before_bind = None
            bind.go_on.set()
            assert "not permitted" in await bind.task
        assert await waiting == ""
        assert len(server.bindings) == 2, "the second after the cards were given back"
        await left.caught_up(right)
        assert left.uuids("a") == right.uuids("a") != []


async def test_a_pod_whose_status_changed_is_bound_as_it_is_now():
    server, gpu_pod = ModelServer(), pod("a", gpu=1, gpumem=8000)
    server.add(gpu_pod)
    async with replica(server=server) as service:
        await service.register("n1", cards("GPU-0"))
        await service.create(gpu_pod)
        await service.places(gpu_pod, "n1")
        server.change("a")
        assert await service.bind(gpu_pod, "n1") == ""
        assert len(server.bindings) == 2


async def test_a_pod_that_wants_other_cards_now_is_not_bound_to_the_old_ones():
    server, gpu_pod = ModelServer(), pod("a", gpu=1, gpumem=8000)
    server.add(gpu_pod)
    async with replica(server=server) as service:
        await service.register("n1", cards("GPU-0", "GPU-1"))
        await service.create(gpu_pod)
        await service.places(gpu_pod, "n1")
        server.change("a", annotations={"nvidia.com/nouse-gpuuuid": "GPU-0"})
        assert await service.bind(gpu_pod, "n1") != ""
        assert service.placed("a") is None
        server.change("a", annotations={"nvidia.com/use-gpuuuid": "GPU-1"})
        await service.places(server.pods["a"], "n1")
        assert await service.bind(gpu_pod, "n1") == ""
        assert service.uuids("a") == ["GPU-1"]


async def test_second_extender_gets_another_card_when_the_last_slot_is_taken():
    store, server = MemoryStore(), ModelServer()
    pods = [pod(name, gpu=1, gpumem=16_000) for name in ("a", "b")]
    server.add(*pods)
    async with replica(store, server) as left, replica(store, server) as right:
        await left.register("n1", cards("GPU-0", "GPU-1"))
        await left.create(*pods)
        await right.caught_up(left)
        errors = await asyncio.gather(left.bind(pods[0], "n1"), right.bind(pods[1], "n1"))
        assert list(errors) == ["", ""]
        await left.caught_up(right)
        assert {*left.uuids("a"), *left.uuids("b")} == {"GPU-0", "GPU-1"}


async def test_answer_has_the_reason_when_no_other_card_fits():
    store, server = MemoryStore(), ModelServer()
    pods = [pod(name, gpu=1, gpumem=16_000) for name in ("a", "b")]
    server.add(*pods)
    async with replica(store, server) as left, replica(store, server) as right:
        await left.register("n1", cards("GPU-0"))
        await left.create(*pods)
        await right.caught_up(left)
        errors = await asyncio.gather(left.bind(pods[0], "n1"), right.bind(pods[1], "n1"))
        assert sorted(map(bool, errors)) == [False, True]
        assert "CardInsufficientMemory" in max(errors)
        assert len(server.bindings) == 1


async def test_several_binds_on_one_node_at_once_get_different_cards():
    server = ModelServer()
    pods = [pod(f"p{number}", gpu=1, gpumem=16_000) for number in range(8)]
    server.add(*pods)
    async with replica(server=server) as service:
        await service.register("n1", cards(*(f"GPU-{number}" for number in range(8))))
        await service.create(*pods)
        errors = await asyncio.gather(*(service.bind(gpu_pod, "n1") for gpu_pod in pods))
        assert set(errors) == {""}
        assert len({uuid for gpu_pod in pods for uuid in service.uuids(gpu_pod.metadata.name)}) == 8


async def test_the_same_pod_is_not_bound_twice_at_once():
    server, gpu_pod = ModelServer(), pod("a", gpu=1, gpumem=8000)
    server.add(gpu_pod)
    async with replica(server=server) as service:
        await service.register("n1", cards("GPU-0"))
        await service.create(gpu_pod)
        errors = await asyncio.gather(service.bind(gpu_pod, "n1"), service.bind(gpu_pod, "n1"))
        assert "" in errors
        assert "being bound already" in max(errors)
        assert len(server.bindings) == 1


async def test_who_took_a_placement_up_does_not_undo_what_another_may_still_bind():
    store, server, gpu_pod = MemoryStore(), ModelServer(), pod("a", gpu=1, gpumem=8000)
    server.add(gpu_pod)
    server.fates.extend([NO_ANSWER, kube_errors.Forbidden("not permitted")])
    async with replica(store, server) as service:
        await service.register("n1", cards("GPU-0"))
        await service.create(gpu_pod)
        assert "no answer" in await service.bind(gpu_pod, "n1")
        assert "not permitted" in await service.bind(gpu_pod, "n1")
        assert service.placed("a") is not None


async def test_placement_is_not_bound_when_settlement_may_undo_it(
    monkeypatch: pytest.MonkeyPatch,
):
    server, gpu_pod = ModelServer(), pod("a", gpu=1, gpumem=8000)
    server.add(gpu_pod)
    server.fates.append(NO_ANSWER)
    async with replica(server=server, settings=QUICK) as service:
        await service.register("n1", cards("GPU-0"))
        await service.create(gpu_pod)
        assert "no answer" in await service.bind(gpu_pod, "n1")
        monkeypatch.setattr("extender.bind.placement_takeover.TAKE_UP_SECONDS", 0.0)
        assert "being settled" in await service.bind(gpu_pod, "n1")
        assert len(server.bindings) == 1, "no second one was sent"
        assert service.placed("a") is not None


async def test_a_placement_that_was_kept_is_bound_in_its_own_time_only(
    hami: ModelServer, monkeypatch: pytest.MonkeyPatch
):
    hami.fates.append(NO_ANSWER)
    async with replica(server=hami) as service:
        await service.register("n1", cards("GPU-0"), HAMI)
        await service.create(hami.pods["a"])
        assert "no answer" in await service.bind(hami.pods["a"], "n1")
        service.ahead += TAKE_UP_SECONDS / 2
        locking = hami.patch_node_annotations

        async def lock_slowly(*change: Any) -> None:
            await locking(*change)
            service.ahead += SEND_SECONDS - TAKE_UP_SECONDS / 2

        monkeypatch.setattr(hami, "patch_node_annotations", lock_slowly)
        assert await service.bind(hami.pods["a"], "n1") == LATE
        assert len(hami.bindings) == 1, "no second one was sent"
        assert service.placed("a") is not None


async def test_binds_report_problems_in_their_answer_and_write_no_event():
    server, gpu_pod = ModelServer(), pod("a", gpu=1, gpumem=8000)
    server.add(gpu_pod)
    server.fates.append(kube_errors.Forbidden("not permitted"))
    async with replica(server=server) as service:
        await service.register("n1", cards("GPU-0"))
        await service.create(gpu_pod)
        assert "not permitted" in await service.bind(gpu_pod, "n1")
        assert await service.bind(gpu_pod, "n1") == ""
        await asyncio.sleep(0.05)
        assert server.events == []


async def test_bind_fails_at_once_when_its_cards_exceed_a_quota():
    server, gpu_pod = ModelServer(), pod("a", gpu=1, **{"gpumem-percentage": 100})
    server.add(gpu_pod)
    async with replica(server=server) as service:
        quota = "quota/east/team/main"
        limits = {"nvidia.com/gpumem": 10_000}
        await service.tell(commands.SetLimits(quota, ("east/team",), limits))
        await service.register("n1", cards("GPU-0"))
        await service.create(gpu_pod)
        position = service.inventory.position
        assert "ResourceQuotaNotFit" in await service.bind(gpu_pod, "n1")
        assert service.inventory.position == position
        assert server.bindings == []
