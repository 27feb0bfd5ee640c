"""What an extender guesses about pods, the others take into account as soon as they hear of it."""

import contextlib
from collections.abc import AsyncIterator

import msgspec
import pytest
from support.extended import ModelServer, Replica, cards, pod, replica

from extender.extender import ExtenderSettings
from extender.guessing import CONTESTED_SECONDS, GUESS_SECONDS, Guess
from extender.selecting import Preferences
from extender.wire import Args
from ledger.core.cards import Booking
from ledger.kube.objects import Pod
from ledger.log.memory import MemoryStore

THEIRS, OURS = pod("theirs", gpu=1, gpumem=16_000), pod("ours", gpu=1, gpumem=16_000)


@contextlib.asynccontextmanager
async def both() -> AsyncIterator[tuple[Replica, Replica, list[bytes]]]:
    """Run two extenders of one node with a card of 16,000 MiB; collect what the first one tells."""
    store, told = MemoryStore(), list[bytes]()
    settings = ExtenderSettings(Preferences(node_policy="binpack"))
    server = ModelServer()
    server.add(THEIRS)
    async with (
        replica(store, server, settings, tell=told.append) as one,
        replica(store, settings=settings) as other,
    ):
        await one.register("n1", cards("GPU-0"))
        await one.create(THEIRS, OURS)
        await other.caught_up(one)
        yield one, other, told


async def scored(found: Replica, one: Pod, *nodes: str) -> dict[str, int]:
    args = Args(one, None, list(nodes))
    await found.extender.filter(args)
    return {each.host: each.score for each in await found.extender.prioritize(args)}


async def test_a_card_that_another_extender_is_about_to_give_away_is_taken() -> None:
    async with both() as (one, other, told):
        await scored(one, THEIRS, "n1")
        assert await other.places(OURS, "n1") == ["n1"], "nothing was heard yet"
        other.extender.hear(told[-1])
        assert await other.places(OURS, "n1") == []


async def test_the_pod_itself_is_not_kept_out_by_what_is_guessed_about_it() -> None:
    async with both() as (one, other, told):
        await scored(one, THEIRS, "n1")
        other.extender.hear(told[-1])
        assert await other.places(THEIRS, "n1") == ["n1"]


async def test_what_others_guess_ends_by_itself() -> None:
    async with both() as (one, other, told):
        await scored(one, THEIRS, "n1")
        other.extender.hear(told[-1])
        other.ahead += GUESS_SECONDS
        assert await other.places(OURS, "n1") == ["n1"]


async def test_what_is_heard_after_the_pod_was_placed_is_not_taken_twice() -> None:
    async with both() as (one, other, told):
        await one.register("n2", cards("GPU-1", memory=32_000))
        await scored(one, THEIRS, "n2")
        assert await one.bind(THEIRS, "n2") == ""
        await other.caught_up(one)
        other.extender.hear(told[-1])
        assert len(other.inventory.overlay) == 0


async def test_who_hears_of_others_leaves_nodes_that_have_room_for_one_more_only() -> None:
    async with both() as (one, other, told):
        await one.register("n2", cards("GPU-1", memory=160_000))
        await scored(one, THEIRS, "n2")
        await other.caught_up(one)
        assert (await scored(other, OURS, "n1", "n2"))["n1"] == 10
        other.extender.hear(told[-1])
        assert (await scored(other, OURS, "n1", "n2"))["n2"] == 10
        other.ahead += CONTESTED_SECONDS
        assert (await scored(other, OURS, "n1", "n2"))["n1"] == 10


@pytest.mark.parametrize(
    "hint",
    [
        b"",
        b"no guess",
        msgspec.msgpack.encode(["c1", "ns"]),
        msgspec.msgpack.encode(Guess("c9", "c9/a", "pods/b", "u", "n1", {"GPU-0": Booking(9)}, [])),
        msgspec.msgpack.encode(Guess("c1", "c1/a", "pods/b", "u", "n9", {"GPU-0": Booking(9)}, [])),
    ],
    ids=["nothing", "another language", "a part", "another cluster", "a node that is not known"],
)
async def test_a_hint_that_means_nothing_here_changes_nothing(hint: bytes) -> None:
    async with both() as (_, other, _):
        other.extender.hear(hint)
        assert not other.inventory.overlay.memory.any()
        assert len(other.inventory.overlay) == 0
