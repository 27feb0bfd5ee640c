"""Cards in ResourceSlices: filter and bind leave them to kube-scheduler's allocator."""

from collections.abc import Set

import pytest
from support.claims.kept_slices import NVIDIA
from support.harness.extender_harness import ModelServer, cards, pod, replica

from extender.fit import repeated_fits
from extender.scheduler_api.extender_wire import ExtenderArgs
from extender.settlement.allocated_devices.offered_cards import OfferedCards

WANTS = pod("a", gpu=1, gpumem=8000)


async def test_card_of_a_slice_is_refused_with_a_reason_of_its_own():
    async with replica() as service:
        await service.register("n1", cards("GPU-0", "GPU-1"))
        await service.register("n2", cards("GPU-2"))
        service.inventory.set_offered("n1", frozenset({"GPU-0", "GPU-1"}))
        service.inventory.set_offered("n2", frozenset({"GPU-9"}))
        answer = await service.extender.filter(ExtenderArgs(WANTS, None, ["n1", "n2"]))
        assert answer.node_names == ["n2"]
        assert answer.failed_and_unresolvable_nodes == {"n1": "2/2 CardOfferedByDRA"}
        assert answer.failed_nodes == {}


async def test_bind_takes_the_card_that_no_slice_has():
    server = ModelServer()
    server.add(WANTS)
    async with replica(server=server) as service:
        await service.register("n1", cards("GPU-0", "GPU-1"))
        await service.create(WANTS)
        service.inventory.set_offered("n1", frozenset({"GPU-0"}))
        assert await service.bind(WANTS, "n1") == ""
        assert service.uuids("a") == ["GPU-1"]


async def test_bind_is_refused_when_slices_have_all_cards_of_the_node():
    server = ModelServer()
    server.add(WANTS)
    async with replica(server=server) as service:
        await service.register("n1", cards("GPU-0"))
        await service.create(WANTS)
        service.inventory.set_offered("n1", frozenset({"GPU-0"}))
        assert "CardOfferedByDRA" in await service.bind(WANTS, "n1")
        assert service.placed("a") is None


async def test_card_is_given_again_when_its_slice_is_gone():
    async with replica() as service:
        await service.register("n1", cards("GPU-0"))
        service.inventory.set_offered("n1", frozenset({"GPU-0"}))
        assert await service.places(WANTS, "n1") == []
        service.inventory.set_offered("n1", frozenset())
        assert await service.places(WANTS, "n1") == ["n1"]


async def test_slice_that_comes_before_its_node_is_remembered():
    async with replica() as service:
        service.inventory.set_offered("n1", frozenset({"GPU-0"}))
        await service.register("n1", cards("GPU-0"))
        assert await service.places(WANTS, "n1") == []
        await service.register("n1", cards("GPU-0", "GPU-1"))
        assert await service.places(WANTS, "n1") == ["n1"]


async def test_offered_cards_stay_so_after_a_reload():
    async with replica() as service:
        await service.register("n1", cards("GPU-0"))
        service.inventory.set_offered("n1", frozenset({"GPU-0"}))
        service.inventory.load(service.writer.state)
        assert await service.places(WANTS, "n1") == []


async def test_device_of_no_certain_node_keeps_its_card_on_any_node():
    async with replica() as service:
        await service.register("n1", cards("GPU-0"))
        service.inventory.set_offered("", frozenset({"GPU-0"}))
        assert await service.places(WANTS, "n1") == []


async def test_repeated_answer_is_not_used_after_a_slice_appeared(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr(repeated_fits, "ROWS_LEAST", 1)
    monkeypatch.setattr("extender.fit.inventory_fit.ROWS_LEAST", 1)
    async with replica() as service:
        for number in range(4):
            await service.register(f"n{number}", cards(f"GPU-{number}"))
        names = [f"n{number}" for number in range(4)]
        for _ in range(3):
            assert await service.places(WANTS, *names) == names
        service.inventory.set_offered("n2", frozenset({"GPU-2"}))
        assert await service.places(WANTS, *names) == ["n0", "n1", "n3"]


async def test_copy_of_the_inventory_has_the_offered_cards():
    async with replica() as service:
        await service.register("n1", cards("GPU-0"))
        service.inventory.set_offered("n1", frozenset({"GPU-0"}))
        copy = service.inventory.frozen_copy()
        service.inventory.set_offered("n1", frozenset())
        assert copy.arrays.offered[copy.rows["n1"], 0]
        assert copy.arrays.any_offered


def test_offers_are_passed_on_to_later_subscribers_and_end():
    offered, heard = OfferedCards(), dict[str, Set[str]]()
    offered.set("n1", dict.fromkeys({"GPU-0"}, NVIDIA))
    offered.subscribe(heard.__setitem__)
    offered.set("n2", dict.fromkeys({"GPU-1"}, NVIDIA))
    offered.set("n1", {})
    assert heard == {"n1": frozenset(), "n2": frozenset({"GPU-1"})}
    assert offered.of("n1") == frozenset()


def test_the_same_cards_again_are_passed_to_no_subscriber():
    offered, heard = OfferedCards(), list[str]()
    offered.subscribe(lambda node, _: heard.append(node))
    for uuids in ({"GPU-0"}, {"GPU-0"}, {"GPU-1"}, set[str](), set[str]()):
        offered.set("n1", dict.fromkeys(uuids, NVIDIA))
    assert heard == ["n1"] * 3
