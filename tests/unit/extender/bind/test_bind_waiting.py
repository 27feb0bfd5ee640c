"""A bind waits for records of its pod and for HAMi's node lock, and no longer than it may."""

import asyncio
from typing import Any

import pytest
from support.harness.extender_harness import CLUSTER, ModelServer, cards, pod, replica

from extender.bind.bind_or_give_back import LATE, SEND_SECONDS
from extender.bind.place_or_choose_again import AGAIN_SECONDS
from extender.scheduler_extender import ExtenderSettings
from ledger.core.model import commands
from ledger.core.model.cards import HAMI, Stage
from ledger.core.model.denials import Denial
from ledger.kube.api import cluster_errors as kube_errors
from ledger.log.ledger_port import Accepted, Ledger

QUICK = ExtenderSettings(bind_wait_seconds=0.2)
PATIENT = ExtenderSettings(bind_wait_seconds=5.0)
"""The command of settlement once no Binding of the pod can come any more."""


async def test_bind_waits_for_a_pod_that_is_recorded_later():
    server, gpu_pod = ModelServer(), pod("a", gpu=1, gpumem=8000)
    server.add(gpu_pod)
    async with replica(server=server, settings=PATIENT) as service:
        await service.register("n1", cards("GPU-0"))
        binding = asyncio.create_task(service.bind(gpu_pod, "n1"))
        await asyncio.sleep(0)
        await service.create(gpu_pod)
        assert await binding == ""


async def test_pod_that_is_never_recorded_is_not_bound():
    server, gpu_pod = ModelServer(), pod("a", gpu=1, gpumem=8000)
    server.add(gpu_pod)
    async with replica(server=server, settings=QUICK) as service:
        await service.register("n1", cards("GPU-0"))
        assert "PodUnknown" in await service.bind(gpu_pod, "n1")
        assert server.bindings == []


async def test_who_waits_does_not_ask_the_ledger_after_every_record():
    asked: list[commands.AnyCommand] = []

    class Counting:
        def __init__(self, ledger: Ledger) -> None:
            self._ledger = ledger

        async def submit(
            self, command: commands.AnyCommand, *, dry_run: bool = False
        ) -> Accepted | Denial:
            asked.append(command)
            return await self._ledger.submit(command, dry_run=dry_run)

    server, gpu_pod = ModelServer(), pod("a", gpu=1, gpumem=8000)
    server.add(gpu_pod)
    async with replica(server=server, settings=QUICK, ledger=Counting) as service:
        await service.register("n1", cards("GPU-0"))
        binding = asyncio.create_task(service.bind(gpu_pod, "n1"))
        await asyncio.sleep(0)
        for number in range(20):
            await service.create(pod(f"p-{number}"))
        assert "PodUnknown" in await binding
    assert len(asked) <= 2 + QUICK.bind_wait_seconds / AGAIN_SECONDS


async def test_a_node_of_hami_is_locked_for_the_pod(hami: ModelServer):
    async with replica(server=hami) as service:
        await service.register("n1", cards("GPU-0"), HAMI)
        await service.create(*hami.pods.values())
        assert await service.bind(hami.pods["a"], "n1") == ""
        annotations = hami.nodes["n1"].metadata.annotations or {}
        assert annotations["hami.io/mutex.lock"].endswith(",team,a")


async def test_on_a_node_of_hami_a_bind_waits_until_the_pod_before_has_its_cards(
    hami: ModelServer,
):
    first, other = hami.pods["a"], hami.pods["b"]
    async with replica(server=hami, settings=PATIENT) as service:
        await service.register("n1", cards("GPU-0"), HAMI)
        await service.create(first, other)
        assert await service.bind(first, "n1") == ""
        waiting = asyncio.create_task(service.bind(other, "n1"))
        for _ in range(20):
            await asyncio.sleep(0)
        assert not waiting.done()
        await hami.patch_node_annotations("n1", {"hami.io/mutex.lock": None})
        namespace = f"{CLUSTER}/team"
        await service.tell(commands.Advance(namespace, "pods/a", "uid-a", Stage.ALLOCATED))
        assert await waiting == ""


async def test_a_bind_waits_no_longer_than_it_may(hami: ModelServer):
    first, other = hami.pods["a"], hami.pods["b"]
    async with replica(server=hami, settings=QUICK) as service:
        await service.register("n1", cards("GPU-0"), HAMI)
        await service.create(first, other)
        assert await service.bind(first, "n1") == ""
        assert "NodeBusy" in await service.bind(other, "n1")
        assert service.placed("b") is None


async def test_a_lock_of_hamis_own_scheduler_is_waited_for_and_then_given_way_to(
    hami: ModelServer,
):
    hami.add(pod("theirs", gpu=1))
    lock = {"hami.io/mutex.lock": "2023-11-14T22:13:00+00:00,team,theirs"}
    await hami.patch_node_annotations("n1", lock)
    async with replica(server=hami, settings=QUICK) as service:
        await service.register("n1", cards("GPU-0"), HAMI)
        await service.create(hami.pods["a"])
        assert "locked for team/theirs" in await service.bind(hami.pods["a"], "n1")
        assert service.placed("a") is None
        del hami.pods["theirs"]
        assert await service.bind(hami.pods["a"], "n1") == ""


async def test_a_refused_binding_unlocks_the_node(hami: ModelServer):
    hami.fates.append(kube_errors.Forbidden("not permitted"))
    async with replica(server=hami) as service:
        await service.register("n1", cards("GPU-0"), HAMI)
        await service.create(hami.pods["a"])
        assert "not permitted" in await service.bind(hami.pods["a"], "n1")
        assert hami.nodes["n1"].metadata.annotations == {}


async def test_no_binding_is_sent_when_a_lock_took_too_long(
    hami: ModelServer, monkeypatch: pytest.MonkeyPatch
):
    async with replica(server=hami) as service:
        await service.register("n1", cards("GPU-0"), HAMI)
        await service.create(hami.pods["a"])
        locking = hami.patch_node_annotations

        async def lock_slowly(*change: Any) -> None:
            await locking(*change)
            service.ahead += SEND_SECONDS

        monkeypatch.setattr(hami, "patch_node_annotations", lock_slowly)
        assert await service.bind(hami.pods["a"], "n1") == LATE
        assert hami.bindings == []
        assert service.placed("a") is None
        assert hami.nodes["n1"].metadata.annotations == {}
