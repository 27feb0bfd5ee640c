"""Extenders count the assumed placements that other extenders publish."""

import contextlib
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest
from structlog.testing import capture_logs
from support.harness.extender_harness import (
    CLUSTER,
    NAMESPACE,
    ExtenderReplica,
    ModelServer,
    cards,
    pod,
    replica,
)

from extender.fit.inventory_fit import FitPreferences
from extender.inventory.assumed_placement_messages import WARNING_SECONDS
from extender.inventory.assumed_placements import (
    ASSUMED_SECONDS,
    CONTESTED_SECONDS,
)
from extender.scheduler_api.extender_wire import ExtenderArgs
from extender.scheduler_extender import ExtenderSettings
from ledger.core.model.amounts import AMOUNT_MAX
from ledger.kube.api.objects import Pod
from ledger.log.memory_log import MemoryStore

THEIRS, OURS = pod("theirs", gpu=1, gpumem=16_000), pod("ours", gpu=1, gpumem=16_000)


@contextlib.asynccontextmanager
async def both() -> AsyncIterator[tuple[ExtenderReplica, ExtenderReplica, list[bytes]]]:
    """Run two extenders of one node with a card of 16,000 MiB; collect the hints of the first."""
    store, told = MemoryStore(), list[bytes]()
    settings = ExtenderSettings(FitPreferences(node_policy="binpack"))
    server = ModelServer()
    server.add(THEIRS)
    async with (
        replica(store, server, settings, tell=told.append) as first,
        replica(store, settings=settings) as other,
    ):
        await first.register("n1", cards("GPU-0"))
        await first.create(THEIRS, OURS)
        await other.caught_up(first)
        yield first, other, told


async def scored(service: ExtenderReplica, gpu_pod: Pod, *nodes: str) -> dict[str, int]:
    args = ExtenderArgs(gpu_pod, None, list(nodes))
    await service.extender.filter(args)
    return {each.host: each.score for each in await service.extender.prioritize(args)}


async def test_a_card_that_another_extender_is_about_to_give_away_is_taken() -> None:
    async with both() as (first, other, told):
        await scored(first, THEIRS, "n1")
        assert await other.places(OURS, "n1") == ["n1"], "nothing was heard yet"
        other.extender.receive(told[-1])
        assert await other.places(OURS, "n1") == []


async def test_cards_of_a_selected_pod_are_assumed_taken_for_the_next_pod() -> None:
    async with replica() as service:
        for node in ("n1", "n2"):
            await service.register(node, cards(f"GPU-{node}"))
        for asked, node in ((THEIRS, "n1"), (OURS, "n2"), (THEIRS, "n1")):
            answer = await service.extender.select(ExtenderArgs(asked, None, ["n1", "n2"]))
            assert answer.node_names is not None
            assert answer.node_names[0] == node


async def test_pod_is_not_blocked_by_its_own_assumed_placement() -> None:
    async with both() as (first, other, told):
        await scored(first, THEIRS, "n1")
        other.extender.receive(told[-1])
        assert await other.places(THEIRS, "n1") == ["n1"]


async def test_assumed_placement_of_another_extender_expires() -> None:
    async with both() as (first, other, told):
        await scored(first, THEIRS, "n1")
        other.extender.receive(told[-1])
        other.ahead += ASSUMED_SECONDS
        assert await other.places(OURS, "n1") == ["n1"]


async def test_hint_about_a_placed_pod_is_not_counted_twice() -> None:
    async with both() as (first, other, told):
        await first.register("n2", cards("GPU-1", memory=32_000))
        await scored(first, THEIRS, "n2")
        assert await first.bind(THEIRS, "n2") == ""
        await other.caught_up(first)
        other.extender.receive(told[-1])
        assert len(other.inventory.overlay) == 0


async def test_extender_avoids_nearly_full_nodes_when_others_place_pods() -> None:
    async with both() as (first, other, told):
        await first.register("n2", cards("GPU-1", memory=160_000))
        await scored(first, THEIRS, "n2")
        await other.caught_up(first)
        assert (await scored(other, OURS, "n1", "n2"))["n1"] == 10
        other.extender.receive(told[-1])
        assert (await scored(other, OURS, "n1", "n2"))["n2"] == 10
        other.ahead += CONTESTED_SECONDS
        assert (await scored(other, OURS, "n1", "n2"))["n1"] == 10


def hint(**changes: Any) -> bytes:
    """Return a hint about a card of the node, changed so that nothing good can come of it."""
    fields = {
        "cluster": CLUSTER,
        "namespace": f"{CLUSTER}/{NAMESPACE}",
        "key": "pods/theirs",
        "uid": "u",
        "node": "n1",
        "bookings": {"GPU-0": [16_000, 100, 1]},
        "alone": [],
    }
    return msgspec.msgpack.encode(list((fields | changes).values()))


def booking(*amounts: int) -> bytes:
    return hint(bookings={"GPU-0": amounts})


DEEP = b"\x98" + hint()[1:] + b"\x91" * 100_000 + b"\xc0"
"""A hint of a later version with a further field, nested very deeply."""

WRONG = {
    "nothing": b"",
    "another language": b"no guess",
    "a part": msgspec.msgpack.encode([CLUSTER, "ns"]),
    "no text": hint().replace(b"pods/theirs", b"pods/\xff\xff\xff\xff\xff\xff"),
    "nested without end": DEEP,
    "less than nothing of memory": booking(-1, 0, 1),
    "less than nothing of cores": booking(0, -1, 1),
    "less than no slots": booking(0, 0, -1),
    "more than can be counted": booking(AMOUNT_MAX + 1, 0, 1),
    "more than 64 bits": booking(2**64 - 1, 0, 1),
}


@pytest.mark.parametrize("wrong", WRONG.values(), ids=WRONG)
async def test_invalid_hint_is_counted_logged_and_changes_nothing(
    wrong: bytes,
) -> None:
    async with both() as (_, other, _):
        with capture_logs() as logs:
            other.extender.receive(wrong)
        assert other.counted == [("hints_refused_total",)]
        assert [log["event"] for log in logs] == ["hint_refused"]
        assert not other.inventory.overlay.memory.any()
        assert len(other.inventory.overlay) == 0
        assert await other.places(OURS, "n1") == ["n1"]
        other.extender.receive(hint())
        assert await other.places(OURS, "n1") == [], "what is heard later is taken into account"


async def test_invalid_hints_are_counted_and_logged_from_time_to_time() -> None:
    async with both() as (_, other, _):
        with capture_logs() as logs:
            for _ in range(50):
                other.extender.receive(b"no guess")
            other.ahead += WARNING_SECONDS
            other.extender.receive(b"no guess")
        assert len(other.counted) == 51
        assert [log["refused"] for log in logs] == [1, 51]


@pytest.mark.parametrize(
    "other_place", [{"cluster": "west"}, {"node": "n9"}, {"bookings": {"GPU-9": [9, 9, 9]}}]
)
async def test_hint_about_an_unknown_node_is_ignored(
    other_place: dict[str, Any],
) -> None:
    async with both() as (_, other, _):
        other.extender.receive(hint(**other_place))
        assert not other.inventory.overlay.memory.any()
        assert not other.counted
