"""Outcomes that an operator reports."""

import pytest
from support.harness.settlement import CLUSTER, DEMAND, World, world

from ledger.core.model.commands import Reserve
from ledger.core.model.events import Cause
from webhook.settlement.operator_outcomes import NothingToSettle, ObjectOutcome, outcome_commands


async def settle(bare_world: World, uid: str, fate: ObjectOutcome) -> None:
    for command in outcome_commands(bare_world.state, uid, fate, "ann"):
        await bare_world.writer.submit(command)


async def test_persisted_object_is_committed_with_its_hold():
    async with world() as bare_world:
        await bare_world.reserve("p", "u1")
        await settle(bare_world, "u1", ObjectOutcome.PERSISTED)
        entry = bare_world.entry("p")
        assert entry.holds == ()
        assert entry.committed.demand == DEMAND


async def test_persisted_update_is_committed_above_its_base():
    async with world() as bare_world:
        await bare_world.reserve("p", "u1")
        await settle(bare_world, "u1", ObjectOutcome.PERSISTED)
        more = {**DEMAND, "nvidia.com/gpumem": 3000}
        await bare_world.reserve("p", "u1", base=812, demand=more)
        await settle(bare_world, "u1", ObjectOutcome.PERSISTED)
        entry = bare_world.entry("p")
        assert entry.holds == ()
        assert (entry.committed.version, entry.committed.demand) == (813, more)


async def test_hold_is_released_when_the_operator_reports_absence():
    async with world() as bare_world:
        await bare_world.reserve("p", "u1")
        await settle(bare_world, "u1", ObjectOutcome.ABSENT)
        assert bare_world.entry("p") is None
        assert bare_world.state.ended["u1"].cause == Cause.OPERATOR


async def test_deleted_object_is_released_with_and_without_observation():
    async with world() as bare_world:
        await bare_world.reserve("seen", "u1")
        await settle(bare_world, "u1", ObjectOutcome.PERSISTED)
        await bare_world.reserve("open", "u2")
        for uid in ("u1", "u2"):
            await settle(bare_world, uid, ObjectOutcome.DELETED)
        assert not bare_world.state.namespaces[f"{CLUSTER}/red"].entries


@pytest.mark.parametrize("fate", list(ObjectOutcome))
async def test_unknown_uid_is_named_with_the_remedy(fate):
    async with world() as bare_world:
        with pytest.raises(NothingToSettle, match=r"uid u9; `gpuledger holds`"):
            outcome_commands(bare_world.state, "u9", fate, "ann")


async def test_settled_object_has_no_open_attempt():
    async with world() as bare_world:
        await bare_world.reserve("p", "u1")
        await settle(bare_world, "u1", ObjectOutcome.PERSISTED)
        for fate in (ObjectOutcome.PERSISTED, ObjectOutcome.ABSENT):
            with pytest.raises(NothingToSettle, match="open attempt"):
                outcome_commands(bare_world.state, "u1", fate, "ann")


async def test_persisted_workload_keeps_root_and_traits():
    async with world() as bare_world:
        held = Reserve(
            f"{CLUSTER}/red", "pods/p", "u1", DEMAND, root="jobs.batch/j", traits=("a=b",)
        )
        await bare_world.writer.submit(held)
        await settle(bare_world, "u1", ObjectOutcome.PERSISTED)
        entry = bare_world.entry("p")
        assert (entry.root, entry.traits, entry.holds) == ("jobs.batch/j", ("a=b",), ())


async def test_workloads_are_settled_by_uid():
    async with world() as bare_world:
        key = "deployments.apps/web"
        for uid, fate in (
            ("u1", ObjectOutcome.ABSENT),
            ("u2", ObjectOutcome.PERSISTED),
            ("u2", ObjectOutcome.DELETED),
        ):
            await bare_world.writer.submit(Reserve(f"{CLUSTER}/red", key, uid, DEMAND))
            await settle(bare_world, uid, fate)
        assert not bare_world.state.namespaces[f"{CLUSTER}/red"].entries
