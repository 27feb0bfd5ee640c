"""The annotation of a resized pod gets the amounts of the log, after its event is there."""

from functools import partial

import pytest
from structlog.testing import capture_logs
from support.harness.card_settlement import (
    ALLOCATED,
    NAMESPACE,
    CardWorld,
    card_world,
    settling_cards,
)

from extender.settlement import allocation_annotations
from ledger.core.model.cards import Part, Parts, Phase, Share, Stage
from ledger.core.model.commands import Resize
from ledger.kube.api.cluster_errors import (
    ClusterError,
    ClusterUnavailable,
    Forbidden,
    Rejected,
    VersionConflict,
)
from ledger.kube.hami import annotation_keys
from ledger.log.memory_log import MemoryStore


def parts(memory: int, uuid: str = "GPU-0") -> Parts:
    return (Part("main", Phase.APP, (Share(uuid, memory, 10),)),)


def annotated(world: CardWorld, name: str = "p", key: str = ALLOCATED) -> str:
    text: str = world.server.objects["pods", "red", name]["metadata"]["annotations"][key]
    return text


async def placed(world: CardWorld, *names: str) -> None:
    """Have pods run on a node, as HAMi has placed them."""
    world.add_node("n1")
    await world.settles_nodes("n1")
    await world.synced()
    for name in names:
        world.add_pod(name, node="n1", parts=parts(1000))
        await world.until(partial(_is_placed, world, name))


def _is_placed(world: CardWorld, name: str) -> bool:
    return world.placed(name) is not None


async def resize(world: CardWorld, name: str, memory: int) -> None:
    there = world.placed(name)
    assert there is not None
    await world.writer.submit(Resize(NAMESPACE, f"pods/{name}", there.uid, parts(memory), {}))


async def test_a_resize_is_written_into_the_annotation_and_nothing_else_is():
    async with card_world() as world, settling_cards(world):
        await placed(world, "p", "q")
        before = dict(world.server.objects["pods", "red", "p"]["metadata"]["annotations"])
        await resize(world, "p", 500)
        await world.until(lambda: annotated(world) == "GPU-0,NVIDIA,500,10:;")
        after = world.server.objects["pods", "red", "p"]["metadata"]["annotations"]
        assert after == before | {ALLOCATED: "GPU-0,NVIDIA,500,10:;"}
        assert (
            after[annotation_keys.VENDOR_ANNOTATIONS["nvidia"].to_allocate]
            == "GPU-0,NVIDIA,1000,10:;"
        )
        assert annotated(world, "q") == "GPU-0,NVIDIA,1000,10:;"
        assert world.nodes.allocations == ["p"]


async def test_annotation_that_a_crash_left_outdated_is_repaired_at_the_start():
    store = MemoryStore()
    async with card_world(store=store) as world:
        async with settling_cards(world):
            await placed(world, "p", "q")
        await resize(world, "p", 500)  # nothing settles: the service that wrote it is gone
        assert annotated(world) == "GPU-0,NVIDIA,1000,10:;"
        async with settling_cards(world):
            await world.until(lambda: annotated(world) == "GPU-0,NVIDIA,500,10:;")
        assert world.nodes.allocations == ["p"]


@pytest.mark.parametrize(
    "error", [VersionConflict("changed"), Forbidden("no"), ClusterUnavailable("gone")]
)
async def test_a_write_that_fails_is_tried_again(error: ClusterError):
    async with card_world() as world, settling_cards(world):
        await placed(world, "p")
        world.nodes.refused.append(error)
        with capture_logs() as logs:
            await resize(world, "p", 500)
            await world.until(lambda: annotated(world) == "GPU-0,NVIDIA,500,10:;")
        told = [log["event"] for log in logs].count("allocation_not_written")
        assert told == (0 if isinstance(error, VersionConflict) else 1)


async def test_a_pod_that_may_not_be_written_holds_up_no_other():
    async with card_world() as world, settling_cards(world):
        await placed(world, "p", "q")
        world.nodes.refused.extend([Forbidden("no")])
        await resize(world, "p", 500)
        await resize(world, "q", 600)
        await world.until(lambda: annotated(world, "q") == "GPU-0,NVIDIA,600,10:;")
        await world.until(lambda: annotated(world) == "GPU-0,NVIDIA,500,10:;")


@pytest.mark.parametrize(
    "error",
    [Rejected("metadata.annotations: Too long", 422), ClusterUnavailable("failed calling webhook")],
)
async def test_a_pod_whose_write_always_fails_delays_no_other(
    monkeypatch: pytest.MonkeyPatch, error: ClusterError
):
    """A tenant may fill a pod's annotations, or its namespace have a webhook that is away."""
    monkeypatch.setattr(allocation_annotations, "RETRY_SECONDS", 600.0)
    async with card_world() as world, settling_cards(world):
        await placed(world, "p", "q")
        world.nodes.refused.append(error)
        await resize(world, "p", 500)
        await world.until(lambda: not world.nodes.refused)
        await resize(world, "q", 600)
        await world.until(lambda: annotated(world, "q") == "GPU-0,NVIDIA,600,10:;")
        assert annotated(world) == "GPU-0,NVIDIA,1000,10:;"


async def test_an_annotation_with_other_cards_is_drift_and_stays():
    async with card_world() as world, settling_cards(world):
        await placed(world, "p")
        other = world.given(parts(700, "GPU-1"), "n1")
        world.server.update("pods", "red", "p", metadata={"annotations": other})
        await world.until(lambda: world.counted["placement_drift_total", "cards"] == 1)
        await resize(world, "p", 500)
        world.add_pod("q", node="n1", parts=parts(1000))
        await world.until(lambda: world.placed("q") is not None)
        await resize(world, "q", 600)
        await world.until(lambda: annotated(world, "q") == "GPU-0,NVIDIA,600,10:;")
        assert world.nodes.allocations == ["q"]


async def test_amounts_that_are_right_are_not_written_again():
    async with card_world() as world, settling_cards(world):
        await placed(world, "p", "q")
        await resize(world, "q", 600)
        await world.until(lambda: world.nodes.allocations == ["q"])
        world.server.update("pods", "red", "p", status={"phase": "Running"})
        await world.until(lambda: world.placed("p").stage == Stage.ALLOCATED)
        world.server.update("pods", "red", "q", metadata={"labels": {"a": "b"}})
        await resize(world, "p", 500)
        await world.until(lambda: annotated(world) == "GPU-0,NVIDIA,500,10:;")
        assert world.nodes.allocations == ["q", "p"]
