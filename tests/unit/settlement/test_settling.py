"""Settling by hand."""

import pytest
from support.settled import CLUSTER, DEMAND, World, world

from ledger.core.events import Cause
from webhook.settling import Fate, NothingToSettle, commands_of


async def settle(one: World, uid: str, fate: Fate) -> None:
    for command in commands_of(one.state, uid, fate, "ann"):
        await one.writer.submit(command)


async def test_a_persisted_object_is_committed_with_what_was_held():
    async with world() as one:
        await one.reserve("p", "u1")
        await settle(one, "u1", Fate.PERSISTED)
        entry = one.entry("p")
        assert entry.holds == ()
        assert entry.committed.demand == DEMAND


async def test_a_persisted_update_is_committed_above_its_base():
    async with world() as one:
        await one.reserve("p", "u1")
        await settle(one, "u1", Fate.PERSISTED)
        more = {**DEMAND, "nvidia.com/gpumem": 3000}
        await one.reserve("p", "u1", base=812, demand=more)
        await settle(one, "u1", Fate.PERSISTED)
        entry = one.entry("p")
        assert entry.holds == ()
        assert (entry.committed.version, entry.committed.demand) == (813, more)


async def test_an_absent_object_is_released_on_the_operators_word():
    async with world() as one:
        await one.reserve("p", "u1")
        await settle(one, "u1", Fate.ABSENT)
        assert one.entry("p") is None
        assert one.state.ended["u1"].cause == Cause.OPERATOR


async def test_a_deleted_object_is_released_whether_seen_or_not():
    async with world() as one:
        await one.reserve("seen", "u1")
        await settle(one, "u1", Fate.PERSISTED)
        await one.reserve("open", "u2")
        for uid in ("u1", "u2"):
            await settle(one, uid, Fate.DELETED)
        assert not one.state.namespaces[f"{CLUSTER}/red"].entries


@pytest.mark.parametrize("fate", list(Fate))
async def test_an_unknown_uid_is_named_with_what_to_look_at(fate):
    async with world() as one:
        with pytest.raises(NothingToSettle, match=r"uid u9; `gpuledger holds`"):
            commands_of(one.state, "u9", fate, "ann")


async def test_a_settled_object_has_no_open_attempt_left_to_settle():
    async with world() as one:
        await one.reserve("p", "u1")
        await settle(one, "u1", Fate.PERSISTED)
        for fate in (Fate.PERSISTED, Fate.ABSENT):
            with pytest.raises(NothingToSettle, match="open attempt"):
                commands_of(one.state, "u1", fate, "ann")
