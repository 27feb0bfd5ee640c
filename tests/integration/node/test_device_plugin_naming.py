"""The pod that the kubelet asks about and starts is identified, in any order and by any source."""

import asyncio
import itertools
from pathlib import Path

import pytest
from msgspec.structs import replace
from support.fakes.kubelet import Asked, NotStarted
from support.harness.device_plugin import CARDS, ONE, container, node_in, share


async def test_the_pod_resources_api_suffices_when_the_checkpoint_is_unreadable(
    tmp_path: Path,
) -> None:
    placed = [container(pod, share(0, memory)) for pod, memory in (("a", 5), ("b", 6))]
    async with node_in(tmp_path, *placed) as node:
        node.kubelet.writes_checkpoint = False
        for pod in ("b", "a"):
            await node.kubelet.admit("team", pod, f"{pod}-uid", ONE)
        for pod in ("a", "b"):
            await node.kubelet.start_container(f"{pod}-uid", "main")
        assert node.limits("a-uid") == {CARDS[0]: 5}
        assert node.limits("b-uid") == {CARDS[0]: 6}


async def test_init_containers_start_without_the_checkpoint(tmp_path: Path) -> None:
    placed = (
        container("a", share(0, 40), share(1, 50), name="fetch"),
        container("a", share(0, 70), name="train", order=1),
    )
    asked = (Asked("fetch", 2, init=True), Asked("train", 1))
    async with node_in(tmp_path, *placed) as node:
        node.kubelet.writes_checkpoint = False
        await node.kubelet.admit("team", "a", "a-uid", asked)
        for name in ("fetch", "train"):
            await node.kubelet.start_container("a-uid", name)
        assert node.limits("a-uid", "fetch") == {CARDS[0]: 40, CARDS[1]: 50}
        assert node.limits("a-uid", "train") == {CARDS[0]: 70}


async def test_the_checkpoint_suffices_where_the_pod_resources_api_is_silent(
    tmp_path: Path,
) -> None:
    async with node_in(tmp_path, container("a", share(0))) as node:
        node.kubelet.speaks_of_pods = False
        await node.run("a")
        assert node.limits("a-uid") == {CARDS[0]: 1_000}


async def test_no_container_starts_that_the_kubelet_does_not_name(tmp_path: Path) -> None:
    async with node_in(tmp_path, container("a", share(0)), verify_seconds=0.2) as node:
        node.kubelet.speaks_of_pods = node.kubelet.writes_checkpoint = False
        await node.kubelet.admit("team", "a", "a-uid", ONE)
        with pytest.raises(
            NotStarted, match=r"UNAVAILABLE.*devices_ids .*neither .* the kubelet retries"
        ):
            await node.kubelet.start_container("a-uid", "main")
        assert node.limits("a-uid") == {CARDS[0]: 0}
        node.kubelet.speaks_of_pods = True
        await node.kubelet.start_container("a-uid", "main")
        assert node.limits("a-uid") == {CARDS[0]: 1_000}


async def test_no_container_starts_that_the_kubelet_names_in_two_ways(tmp_path: Path) -> None:
    placed = container("a", share(0)), container("b", share(1), share(0))
    async with node_in(tmp_path, *placed, verify_seconds=0.2) as node:
        await node.kubelet.admit("team", "a", "a-uid", ONE)
        node.kubelet.lies["a-uid"] = ("team", "b")
        with pytest.raises(NotStarted, match=r"lists team/b, its checkpoint lists team/a"):
            await node.kubelet.start_container("a-uid", "main")


@pytest.mark.parametrize("order", list(itertools.permutations("abc")))
async def test_no_container_gets_the_cards_of_another_in_any_order(
    tmp_path: Path, order: tuple[str, ...]
) -> None:
    shares = {"a": share(0, 11), "b": share(1, 22), "c": share(0, 33)}
    placed = [container(pod, shares[pod], time=index) for index, pod in enumerate("abc")]
    async with node_in(tmp_path, *placed) as node:
        for pod in order:
            await node.kubelet.admit("team", pod, f"{pod}-uid", ONE)
        for pod in "cab":
            _, answer = node.kubelet.answers[f"{pod}-uid", "main"]
            given = answer.envs["NVIDIA_VISIBLE_DEVICES"]
            if given == shares[pod].uuid:
                await node.kubelet.start_container(f"{pod}-uid", "main")
                assert node.limits(f"{pod}-uid") == {given: shares[pod].memory}
            else:
                with pytest.raises(NotStarted, match="another order"):
                    await node.kubelet.start_container(f"{pod}-uid", "main")
                assert set(node.limits(f"{pod}-uid").values()) == {0}


@pytest.mark.parametrize("order", list(itertools.permutations("abc")))
async def test_with_cdi_all_containers_start_in_any_order(
    tmp_path: Path, order: tuple[str, ...]
) -> None:
    shares = {"a": share(0, 11), "b": share(1, 22), "c": share(0, 33)}
    placed = [container(pod, shares[pod], time=index) for index, pod in enumerate("abc")]
    async with node_in(tmp_path, *placed, cdi=True) as node:
        for pod in order:
            await node.kubelet.admit("team", pod, f"{pod}-uid", ONE)
        for pod in reversed(order):
            await node.kubelet.start_container(f"{pod}-uid", "main")
            assert node.limits(f"{pod}-uid") == {shares[pod].uuid: shares[pod].memory}


async def test_pods_that_are_admitted_at_the_same_time_all_get_an_answer(tmp_path: Path) -> None:
    placed = [container(f"p{number}", share(0, 100 + number)) for number in range(4)]
    async with node_in(tmp_path, *placed) as node:
        ids = [f"{CARDS[0]}-{slot}" for slot in range(4)]
        answers = await asyncio.gather(*map(node.allocate, ids))
        for number in range(4):
            node.kubelet.names[f"p{number}-uid"] = ("team", f"p{number}")
            node.kubelet.answers[f"p{number}-uid", "main"] = (
                frozenset({ids[number]}),
                answers[number],
            )
        node.kubelet.write_checkpoint()
        for number in (2, 0, 3, 1):
            await node.kubelet.start_container(f"p{number}-uid", "main")
            assert node.limits(f"p{number}-uid") == {CARDS[0]: 100 + number}


async def test_two_calls_that_wait_for_the_ledger_get_their_own_responses(tmp_path: Path) -> None:
    async with node_in(tmp_path) as node:
        waiting = [asyncio.create_task(node.allocate(f"{CARDS[0]}-{slot}")) for slot in range(2)]
        await asyncio.sleep(0.1)
        node.placed.add(container("a", share(0), time=1), container("b", share(1), time=2))
        answers = await asyncio.gather(*waiting)
        assert {answer.envs["NVIDIA_VISIBLE_DEVICES"] for answer in answers} == set(CARDS[:2])


async def test_a_new_placement_precedes_running_containers(tmp_path: Path) -> None:
    runs = replace(container("a", share(0), time=1), allocated=True)
    async with node_in(tmp_path, runs) as node:
        admitted = asyncio.create_task(node.kubelet.admit("team", "b", "b-uid", ONE))
        await asyncio.sleep(0.1)
        node.placed.add(container("b", share(1), time=2))
        await admitted
        await node.kubelet.start_container("b-uid", "main")
