"""Outcomes that an operator reports."""

import pytest
from support.harness.settlement import CLUSTER, DEMAND, World, world

from ledger.core.model.commands import Reserve
from ledger.core.model.events import Cause
from webhook.settlement.operator_outcomes import NothingToSettle, ObjectOutcome, outcome_commands


async def settle(one: World, uid: str, fate: ObjectOutcome) -> None:
    for command in outcome_commands(one.state, uid, fate, "ann"):
        await one.writer.submit(command)


async def test_persisted_object_is_committed_with_its_hold():
    async with world() as one:
        await one.reserve("p", "u1")
        await settle(one, "u1", ObjectOutcome.PERSISTED)
        entry = one.entry("p")
        assert entry.holds == ()
        assert entry.committed.demand == DEMAND


async def test_persisted_update_is_committed_above_its_base():
    async with world() as one:
        await one.reserve("p", "u1")
        await settle(one, "u1", ObjectOutcome.PERSISTED)
        more = {**DEMAND, "nvidia.com/gpumem": 3000}
        await one.reserve("p", "u1", base=812, demand=more)
        await settle(one, "u1", ObjectOutcome.PERSISTED)
        entry = one.entry("p")
        assert entry.holds == ()
        assert (entry.committed.version, entry.committed.demand) == (813, more)


async def test_hold_is_released_when_the_operator_reports_absence():
    async with world() as one:
        await one.reserve("p", "u1")
        await settle(one, "u1", ObjectOutcome.ABSENT)
        assert one.entry("p") is None
        assert one.state.ended["u1"].cause == Cause.OPERATOR


async def test_deleted_object_is_released_with_and_without_observation():
    async with world() as one:
        await one.reserve("seen", "u1")
        await settle(one, "u1", ObjectOutcome.PERSISTED)
        await one.reserve("open", "u2")
        for uid in ("u1", "u2"):
            await settle(one, uid, ObjectOutcome.DELETED)
        assert not one.state.namespaces[f"{CLUSTER}/red"].entries


@pytest.mark.parametrize("fate", list(ObjectOutcome))
async def test_unknown_uid_is_named_with_the_remedy(fate):
    async with world() as one:
        with pytest.raises(NothingToSettle, match=r"uid u9; `gpuledger holds`"):
            outcome_commands(one.state, "u9", fate, "ann")


async def test_settled_object_has_no_open_attempt():
    async with world() as one:
        await one.reserve("p", "u1")
        await settle(one, "u1", ObjectOutcome.PERSISTED)
        for fate in (ObjectOutcome.PERSISTED, ObjectOutcome.ABSENT):
            with pytest.raises(NothingToSettle, match="open attempt"):
                outcome_commands(one.state, "u1", fate, "ann")


async def test_persisted_workload_keeps_root_and_traits():
    async with world() as one:
        held = Reserve(
            f"{CLUSTER}/red", "pods/p", "u1", DEMAND, root="jobs.batch/j", traits=("a=b",)
        )
        await one.writer.submit(held)
        await settle(one, "u1", ObjectOutcome.PERSISTED)
        entry = one.entry("p")
        assert (entry.root, entry.traits, entry.holds) == ("jobs.batch/j", ("a=b",), ())


async def test_workloads_are_settled_by_uid():
    async with world() as one:
        key = "deployments.apps/web"
        for uid, fate in (
            ("u1", ObjectOutcome.ABSENT),
            ("u2", ObjectOutcome.PERSISTED),
            ("u2", ObjectOutcome.DELETED),
        ):
            await one.writer.submit(Reserve(f"{CLUSTER}/red", key, uid, DEMAND))
            await settle(one, uid, fate)
        assert not one.state.namespaces[f"{CLUSTER}/red"].entries
