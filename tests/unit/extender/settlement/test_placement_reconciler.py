"""Placements follow the pods: ours advance, other schedulers' are charged, drift is counted."""

import asyncio
from typing import Any

import pytest
from structlog.testing import capture_logs
from support.harness.card_settlement import ALLOCATED, card_text, card_world, settling_cards
from support.harness.settlement import CLUSTER

from ledger.core.model.accounts import card
from ledger.core.model.cards import OWN, Part, Phase, Placement, Share, Stage
from ledger.core.model.commands import MakeRoom, Place, Resize, Unplace
from ledger.core.model.denials import Denial
from ledger.core.model.events import Cause
from ledger.kube.api.cluster_errors import ClusterUnavailable
from ledger.kube.api.objects import Pod
from ledger.kube.hami import annotation_keys, node_lock_annotation

ON_0 = (Part("main", Phase.APP, (Share("GPU-0", 1000, 10),)),)
ON_1 = (Part("main", Phase.APP, (Share("GPU-1", 1000, 10),)),)
WHERE = f"{CLUSTER}/red", "pods/p"


def used(world, uuid: str, node: str = "n1") -> tuple[int, ...]:
    account = world.state.accounts[card(CLUSTER, node, uuid)]
    return tuple(world.state.used[line] for line in account.lines.values())


async def ready(world, *nodes: str) -> None:
    for name in nodes or ("n1",):
        world.add_node(name)
    await world.settles_nodes(*(nodes or ("n1",)))
    await world.synced()


async def test_pod_of_another_scheduler_is_charged_on_its_cards():
    async with card_world() as world, settling_cards(world):
        await ready(world)
        world.add_pod("p", node="n1", parts=ON_0)
        await world.until(lambda: world.placed("p") is not None)
        assert world.placed("p").observed
        assert world.placed("p").stage == Stage.BOUND
        assert used(world, "GPU-0") == (1000, 10, 1)


async def test_pods_that_were_there_before_are_charged_after_the_first_list():
    async with card_world() as world:
        world.add_node("n1")
        for number in range(3):
            world.add_pod(f"p{number}", node="n1", parts=ON_0)
        async with settling_cards(world):
            await world.until(lambda: all(world.placed(f"p{number}") for number in range(3)))
            assert used(world, "GPU-0") == (3000, 30, 3)


async def test_pod_is_charged_as_soon_as_its_node_announces_cards():
    async with card_world(settle_seconds=0.4) as world, settling_cards(world):
        await ready(world, "n2")
        world.add_pod("p", node="n1", parts=ON_0)
        await world.until(lambda: world.cards.unaccounted == 1)
        assert world.placed("p") is None
        assert "red/p" in world.cards.warnings()[0]
        world.add_node("n1")
        await world.until(lambda: world.placed("p") is not None)
        await world.until(lambda: world.cards.unaccounted == 0)


async def test_why_a_pod_cannot_be_charged_is_logged_once():
    async with card_world() as world, settling_cards(world):
        await ready(world)
        with capture_logs() as logs:
            world.add_pod("p", node="n9", parts=ON_0)
            await world.until(lambda: world.cards.unaccounted == 1)
            for number in range(3):
                world.server.update("pods", "red", "p", metadata={"labels": {"n": str(number)}})
            world.add_pod("q", node="n1", parts=ON_0)
            await world.until(lambda: world.placed("q") is not None)
        assert [log["event"] for log in logs].count("placement_not_known") == 1


async def test_what_a_pod_was_given_may_exceed_a_card_because_it_is_the_truth():
    async with card_world() as world, settling_cards(world):
        await ready(world)
        share = Share("GPU-0", 20_000, 10)
        for name in ("a", "b"):
            world.add_pod(name, node="n1", parts=(Part("main", Phase.APP, (share,)),))
        await world.until(lambda: world.placed("a") is not None and world.placed("b") is not None)
        assert used(world, "GPU-0") == (40_000, 20, 2)


async def test_annotations_of_a_pod_that_is_not_bound_count_nothing():
    async with card_world() as world, settling_cards(world):
        await ready(world)
        world.add_pod("p", parts=ON_0)
        world.add_pod("q", node="n1", parts=ON_0)
        await world.until(lambda: world.placed("q") is not None)
        assert world.placed("p") is None
        assert world.cards.unaccounted == 0


async def test_a_placement_whose_pod_changes_before_its_binding_stays():
    async with card_world() as world, settling_cards(world):
        await ready(world)
        uid = world.add_pod("p")
        await world.until(lambda: world.entry("p") is not None)
        await world.place("p", uid, "n1", ON_0)
        world.server.update("pods", "red", "p", metadata={"labels": {"a": "b"}})
        world.add_pod("q", node="n1", parts=ON_0)
        await world.until(lambda: world.placed("q") is not None)
        assert world.placed("p").stage == Stage.PROPOSED


async def test_annotations_that_speak_of_another_node_are_of_an_earlier_choice():
    async with card_world() as world, settling_cards(world):
        await ready(world)
        world.add_pod("p", node="n1")
        world.server.update("pods", "red", "p", metadata={"annotations": world.given(ON_0, "n9")})
        await world.until(lambda: world.cards.unaccounted == 1)
        assert "n9" in world.cards.warnings()[0]
        assert world.placed("p") is None


async def test_pod_with_an_invalid_request_is_charged_on_its_cards():
    async with card_world() as world, settling_cards(world):
        await ready(world)
        world.add_pod("p", node="n1", parts=ON_0, gpumem="16Gi")
        await world.until(lambda: world.placed("p") is not None)
        assert used(world, "GPU-0") == (1000, 10, 1)


async def test_the_end_of_a_pod_gives_its_cards_back():
    async with card_world() as world, settling_cards(world):
        await ready(world)
        world.add_pod("p", node="n1", parts=ON_0)
        await world.until(lambda: world.placed("p") is not None)
        world.server.update("pods", "red", "p", status={"phase": "Succeeded"})
        await world.until(lambda: world.placed("p") is None)
        assert used(world, "GPU-0") == (0, 0, 0)


@pytest.mark.parametrize("phase", [annotation_keys.SUCCESS, ""])
async def test_a_placement_of_ours_comes_further_as_its_pod_does(phase):
    async with card_world() as world, settling_cards(world):
        await ready(world)
        uid = world.add_pod("p")
        await world.until(lambda: world.entry("p") is not None)
        await world.place("p", uid, "n1", ON_0)
        world.server.update(
            "pods",
            "red",
            "p",
            spec={"nodeName": "n1"},
            metadata={"annotations": world.given(ON_0, "n1")},
        )
        await world.until(lambda: world.placed("p").stage == Stage.BOUND)
        if phase:
            given = world.given(ON_0, "n1") | {annotation_keys.BIND_PHASE: phase}
            world.server.update("pods", "red", "p", metadata={"annotations": given})
        else:
            world.server.update("pods", "red", "p", status={"phase": "Running"})
        await world.until(lambda: world.placed("p").stage == Stage.ALLOCATED)
        assert not world.placed("p").observed
        assert world.counted["placement_drift_total", "cards"] == 0


async def test_init_containers_that_are_over_book_nothing_any_more():
    parts = (
        Part("prepare", Phase.INIT, (Share("GPU-0", 9000, 50),)),
        Part("main", Phase.APP, (Share("GPU-0", 1000, 10),)),
    )
    async with card_world() as world, settling_cards(world):
        await ready(world)
        world.add_pod("p", node="n1", parts=parts)
        limits = {"nvidia.com/gpu": "1", "nvidia.com/gpumem": "9000", "nvidia.com/gpucores": "50"}
        init = [{"name": "prepare", "resources": {"limits": limits}}]
        world.server.update("pods", "red", "p", spec={"initContainers": init})
        await world.until(lambda: world.placed("p") is not None)
        assert used(world, "GPU-0") == (9000, 50, 1)
        over = [{"name": "prepare", "state": {"terminated": {"exitCode": 0}}}]
        world.server.update("pods", "red", "p", status={"initContainerStatuses": over})
        await world.until(lambda: world.placed("p").initialised)
        assert used(world, "GPU-0") == (1000, 10, 1)
        assert world.entry("p").charge["nvidia.com/gpumem"] == 1000


async def test_annotation_that_contradicts_our_placement_is_drift():
    async with card_world() as world, settling_cards(world):
        await ready(world)
        uid = world.add_pod("p")
        await world.until(lambda: world.entry("p") is not None)
        await world.place("p", uid, "n1", ON_0)
        said = world.given(ON_1, "n1")
        for _ in range(2):
            world.server.update(
                "pods", "red", "p", spec={"nodeName": "n1"}, metadata={"annotations": said}
            )
        await world.until(lambda: world.placed("p").stage == Stage.BOUND)
        assert world.placed("p").parts == ON_0
        assert used(world, "GPU-1") == (0, 0, 0)
        assert world.counted["placement_drift_total", "cards"] == 1


async def test_resized_amounts_are_not_drift():
    async with card_world() as world, settling_cards(world):
        await ready(world)
        world.add_pod("p", node="n1", parts=ON_0)
        await world.until(lambda: world.placed("p") is not None)
        smaller = (Part("main", Phase.APP, (Share("GPU-0", 500, 10),)),)
        await world.writer.submit(Resize(*WHERE, world.placed("p").uid, smaller, {}))
        world.server.update("pods", "red", "p", status={"phase": "Running"})
        await world.until(lambda: world.placed("p").stage == Stage.ALLOCATED)
        assert world.placed("p").parts == smaller
        assert world.counted["placement_drift_total", "cards"] == 0


async def test_pod_bound_elsewhere_has_the_cards_of_that_node():
    async with card_world() as world, settling_cards(world):
        await ready(world, "n1", "n2")
        uid = world.add_pod("p")
        await world.until(lambda: world.entry("p") is not None)
        await world.place("p", uid, "n1", ON_0)
        said = world.given(ON_1, "n2")
        world.server.update(
            "pods", "red", "p", spec={"nodeName": "n2"}, metadata={"annotations": said}
        )
        await world.until(lambda: getattr(world.placed("p"), "node", "") == f"{CLUSTER}/n2")
        assert used(world, "GPU-0") == (0, 0, 0)
        assert used(world, "GPU-1", "n2") == (1000, 10, 1)
        assert world.counted["placement_drift_total", "node"] == 1


async def test_unbound_placement_is_undone_after_a_read_and_not_before():
    async with card_world(settle_seconds=0.4) as world, settling_cards(world):
        await ready(world)
        uid = world.add_pod("p")
        await world.until(lambda: world.entry("p") is not None)
        world.nodes.unreadable = ClusterUnavailable("later")
        await world.place("p", uid, "n1", ON_0)
        await world.until(lambda: world.nodes.pod_reads == ["p"])
        assert world.placed("p") is not None
        assert world.cards.unbound == 1
        world.nodes.unreadable = None
        await world.until(lambda: world.placed("p") is None)
        assert used(world, "GPU-0") == (0, 0, 0)
        assert world.cards.unbound == 0


async def test_a_read_that_shows_the_pod_bound_keeps_its_cards():
    async with card_world(settle_seconds=0.4) as world, settling_cards(world):
        await ready(world)
        uid = world.add_pod("p")
        await world.until(lambda: world.entry("p") is not None)
        body = world.server.objects["pods", "red", "p"]
        await world.place("p", uid, "n1", ON_0)
        body["spec"]["nodeName"] = "n1"  # the watch does not deliver it
        await world.until(lambda: world.placed("p").stage == Stage.BOUND)
        assert world.cards.unbound == 0


async def test_what_a_read_shows_undoes_no_placement_that_was_made_during_it(monkeypatch):
    async with card_world(settle_seconds=0.4) as world, settling_cards(world):
        await ready(world)
        uid = world.add_pod("p")
        await world.until(lambda: world.entry("p") is not None)
        await world.place("p", uid, "n1", ON_0)
        read = world.nodes.get_pod
        stood: list[bool] = []

        async def placed_anew(namespace: str, name: str) -> Pod | None:
            stood.append(world.placed("p") is not None)
            pod = await read(namespace, name)
            if len(stood) == 1:
                await world.writer.submit(Unplace(*WHERE, uid, f"{CLUSTER}/n1", Cause.UNBOUND))
                await world.place("p", uid, "n1", ON_0)
            return pod

        monkeypatch.setattr(world.nodes, "get_pod", placed_anew)
        await world.until(lambda: len(stood) == 2)
        assert stood == [True, True]


async def test_who_is_not_bound_gives_back_the_lock_of_the_node_too():
    async with card_world(settle_seconds=0.4) as world, settling_cards(world):
        world.add_node("n1", LOCK=node_lock_annotation.write("red", "p", world.clock()))
        await world.settles_nodes("n1")
        uid = world.add_pod("p")
        await world.until(lambda: world.entry("p") is not None)
        await world.place("p", uid, "n1", ON_0)
        await world.until(lambda: bool(world.nodes.writes))
        assert world.nodes.writes[0][:2] == ("n1", {annotation_keys.LOCK: None})
        await world.until(lambda: world.placed("p") is None)


async def test_new_active_replica_finds_unbound_placements_with_age_zero():
    async with card_world(settle_seconds=0.4) as world:
        async with settling_cards(world):
            await ready(world)
            uid = world.add_pod("p")
            await world.until(lambda: world.entry("p") is not None)
        await world.place("p", uid, "n1", ON_0)
        clock = asyncio.get_running_loop().time
        begun = clock()
        async with settling_cards(world):
            await world.until(lambda: bool(world.nodes.pod_reads))
            assert clock() - begun >= 0.4
            await world.until(lambda: world.placed("p") is None)


async def test_cards_are_kept_for_a_pod_no_longer_than_their_time():
    async with card_world(claim_seconds=0.3) as world, settling_cards(world):
        world.add_node("n1", KEEPER=OWN)
        await world.settles_nodes("n1")
        uid = world.add_pod("p")
        await world.until(lambda: world.entry("p") is not None)
        clock = asyncio.get_running_loop().time
        begun = clock()
        answer = await world.writer.submit(MakeRoom(*WHERE, uid, f"{CLUSTER}/n1", ON_0, ()))
        assert not isinstance(answer, Denial), answer
        assert world.state.claims
        await world.until(lambda: not world.state.claims)
        assert clock() - begun >= 0.3


async def test_settlement_keeps_a_placement_that_another_extender_renewed(monkeypatch):
    async with card_world(settle_seconds=0.4) as world, settling_cards(world):
        await ready(world)
        uid = world.add_pod("p")
        await world.until(lambda: world.entry("p") is not None)
        where, node = (*WHERE, uid), f"{CLUSTER}/n1"
        assert_accepted(await world.writer.submit(Place(*where, node, ON_0, version=7)))
        submit, left = world.writer.submit, list[Placement | None]()

        async def anew_first(command: Any, **more: Any) -> Any:
            if not isinstance(command, Unplace) or left:
                return await submit(command, **more)
            await submit(Unplace(*where, node, Cause.UNBOUND, version=7))
            await submit(Place(*where, node, ON_0, version=9))
            answer = await submit(command, **more)
            left.append(world.placed("p"))
            return answer

        monkeypatch.setattr(world.writer, "submit", anew_first)
        await world.until(lambda: bool(left))
        assert left[0] is not None
        assert left[0].version == 9


def assert_accepted(answer: Any) -> None:
    assert not isinstance(answer, Denial), answer


async def test_invalid_list_of_cards_is_reported_and_charges_nothing():
    async with card_world() as world, settling_cards(world):
        await ready(world)
        world.add_pod("p", node="n1", parts=ON_0)
        await world.until(lambda: world.placed("p") is not None)
        world.add_pod("q", node="n1", parts=ON_0)
        world.add_node("n2", text=card_text(1))
        body = {
            "metadata": {"annotations": {ALLOCATED: "GPU-0,NVIDIA,x:;", annotation_keys.NODE: "n1"}}
        }
        world.server.create(
            "pods",
            "red",
            {
                "metadata": {"name": "r", **body["metadata"]},
                "spec": {"containers": [{"name": "main"}], "nodeName": "n1"},
            },
        )
        await world.until(lambda: world.cards.unaccounted == 1)
        assert ALLOCATED in world.cards.warnings()[0]
