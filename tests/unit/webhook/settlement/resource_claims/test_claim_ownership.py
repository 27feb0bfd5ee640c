"""Claims that a pod controls: charged with the pod that names them, or on their own."""

import asyncio

from support.claims.claim_settlement import (
    allocated_pod,
    charged_pod,
    claim_is_charged,
    pod_is_charged,
    settled_claims,
)
from support.fakes.claimed_cluster import (
    BOUND,
    GIVEN,
    allocate,
    charge_of,
    claim_entry,
    devices_of,
    generated,
    make_claim,
    make_template,
    pod_charge,
    reserve_key,
    reviewed_pod,
    serve_claims,
    show_claim,
)
from support.harness.settlement import full_world, settling

from ledger.core.model.commands import End, Observe
from ledger.core.model.events import Cause
from ledger.kube.api.api_resources import (
    CLAIMS,
)
from ledger.kube.api.cluster_ports import Interrupted


def commands_about(world, key: str) -> list:
    return [
        command
        for command in world.asked
        if isinstance(command, Observe | End) and command.key == key
    ]


async def test_claim_waits_for_the_pod_that_names_it_later():
    async with settled_claims() as world:
        pod = await reviewed_pod(world)
        make_claim(world, "p-g-x", pod)
        allocate(world, "p-g-x")
        await asyncio.sleep(3)
        show_claim(world, "p", "p-g-x")
        await pod_is_charged(world, GIVEN)
        await asyncio.sleep(12)
        assert claim_entry(world, "p-g-x") is None
        assert commands_about(world, f"{CLAIMS.name}/p-g-x") == []


async def test_claim_is_charged_alone_when_no_pod_names_it_in_time():
    async with settled_claims() as world:
        pod = await reviewed_pod(world)
        generated(world, pod)
        forged = make_claim(world, "forged", pod)
        await asyncio.sleep(3)
        assert claim_entry(world, "forged") is None
        assert world.settlement.unnamed_claims == 1
        await claim_is_charged(world, "forged", BOUND)
        assert claim_entry(world, "forged").committed.uid == forged["metadata"]["uid"]
        assert pod_charge(world, "p") == BOUND
        assert world.drift == {Cause.UNRESERVED: 1}
        assert world.settlement.unnamed_claims == 0
        assert world.counted["resource_claims_alone_total",] == 1


async def test_claim_is_charged_alone_when_another_pod_names_it():
    async with settled_claims() as world:
        owner, other = await reviewed_pod(world, "owner"), await reviewed_pod(world, "other")
        assert other["metadata"]["uid"] != owner["metadata"]["uid"]
        make_claim(world, "c", owner)
        show_claim(world, "other", "c")
        await asyncio.sleep(4)
        await claim_is_charged(world, "c", BOUND)


async def test_claim_of_an_ended_pod_is_charged_alone_while_it_exists():
    async with settled_claims() as world:
        claim = await allocated_pod(world)
        await asyncio.sleep(4)  # what the pod names is not new any more
        world.server.update("pods", "red", "p", status={"phase": "Succeeded"})
        await world.until(lambda: world.entry("p") is None)
        await asyncio.sleep(4)
        await claim_is_charged(world, claim, GIVEN)
        world.server.delete(CLAIMS.name, "red", claim)
        await world.until(lambda: claim_entry(world, claim) is None)


async def test_claim_with_a_reservation_of_its_own_is_not_charged_with_its_pod():
    async with settled_claims() as world:
        pod = await reviewed_pod(world)
        await reserve_key(world, f"{CLAIMS.name}/p-g-x", "claim-uid")
        make_claim(world, "p-g-x", pod, uid="claim-uid")
        show_claim(world, "p", "p-g-x")
        await claim_is_charged(world, "p-g-x", BOUND)
        allocate(world, "p-g-x")
        await claim_is_charged(world, "p-g-x", GIVEN)
        await world.until(lambda: pod_charge(world, "p") == {})
        assert devices_of(world.entry("p")) == []
        assert not world.drift


async def test_claim_of_another_namespace_is_not_that_of_the_pod():
    async with settled_claims() as world:
        pod = await reviewed_pod(world)
        claim = generated(world, pod)
        body = world.server.objects[CLAIMS.name, "red", claim]
        world.server.create(CLAIMS.name, "blue", body, "another-uid")
        await asyncio.sleep(8)
        foreign = world.root(f"{CLAIMS.name}/{claim}", "c/blue")
        assert charge_of(foreign) == BOUND
        assert pod_charge(world, "p") == BOUND
        assert claim_entry(world, claim) is None


async def test_claims_wait_for_their_pods_while_pods_cannot_be_listed(monkeypatch):
    async def broken():
        yield Interrupted("the API server does not answer")
        await asyncio.Event().wait()

    async with full_world(settle_seconds=4) as world:
        serve_claims(world)
        make_template(world)
        claim = generated(world, await reviewed_pod(world))
        monkeypatch.setattr(world.cluster, "watch_pods", broken)
        async with settling(world):
            await world.until(lambda: world.settlement.unnamed_claims == 1)
            await asyncio.sleep(20)
            assert claim_entry(world, claim) is None


async def test_claim_moves_from_its_pod_to_its_key_when_it_is_reserved_there():
    async with settled_claims() as world:
        claim = await charged_pod(world)
        uid = world.server.objects[CLAIMS.name, "red", claim]["metadata"]["uid"]
        await reserve_key(world, f"{CLAIMS.name}/{claim}", uid)
        await asyncio.sleep(2)
        assert charge_of(claim_entry(world, claim)) == BOUND
        assert pod_charge(world, "p") == {}


async def test_unwritten_claim_leaves_that_of_a_pod_with_the_same_name_alone():
    """The list that proves the absence shows the claim of the pod at the key."""
    async with settled_claims() as world:
        claim = await charged_pod(world)
        key = f"{CLAIMS.name}/{claim}"
        await reserve_key(world, key, "unwritten")
        await world.until(lambda: claim_entry(world, claim) is None)
        assert world.state.ended["unwritten"].cause == Cause.ABSENT
        await asyncio.sleep(3)
        assert commands_about(world, key) == []
        assert pod_charge(world, "p") == BOUND


async def test_claim_moves_to_its_key_when_it_loses_its_owner():
    async with settled_claims() as world:
        claim = await allocated_pod(world)
        world.server.update(CLAIMS.name, "red", claim, metadata={"ownerReferences": []})
        await claim_is_charged(world, claim, GIVEN)
        await world.until(lambda: devices_of(world.entry("p")) == [])


async def test_claim_is_charged_alone_when_a_list_lacks_its_pod():
    async with settled_claims(recount_seconds=5) as world:
        claim = await allocated_pod(world)
        del world.server.objects["pods", "red", "p"]  # no watch reports it
        await world.until(lambda: world.entry("p") is None)
        await asyncio.sleep(6)
        assert charge_of(claim_entry(world, claim)) == GIVEN
