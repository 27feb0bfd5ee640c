"""Claims that are made for pods: their pods are charged, and settled to what was allocated."""

import asyncio

from support.fakes.claimed_cluster import (
    BOUND,
    GIVEN,
    allocate,
    charge_of,
    claim_entry,
    deallocate,
    devices_of,
    generated,
    make_claim,
    make_pod,
    make_template,
    pod_charge,
    reserve_key,
    serve_claims,
    show_claim,
)
from support.harness.settlement import full_world, settling

from ledger.core.model.commands import End, Observe
from ledger.core.model.events import Cause
from ledger.kube.api.api_resources import CLAIMS
from ledger.kube.api.pod_gates import GATE


def commands_about(world, key: str) -> list:
    return [
        command
        for command in world.asked
        if isinstance(command, Observe | End) and command.key == key
    ]


def pods_are_listed(world) -> bool:
    active = world.settlement._active
    return active is not None and "pods" not in active.informers.waiting


async def reviewed_pod(world, name: str = "p"):
    """Write a pod as its review reserves for it."""
    uid = f"uid-of-{name}"
    await reserve_key(world, f"pods/{name}", uid)
    return make_pod(world, name, uid=uid)


async def test_pod_is_settled_to_the_allocation_and_back_to_the_bound():
    async with full_world(settle_seconds=4) as world:
        serve_claims(world)
        make_template(world)
        async with settling(world):
            await world.synced()
            pod = await reviewed_pod(world)
            claim = generated(world, pod)
            await world.until(lambda: pod_charge(world, "p") == BOUND)
            allocate(world, claim)
            await world.until(lambda: pod_charge(world, "p") == GIVEN)
            assert devices_of(world.entry("p")) == [(claim, "gpu-0")]
            assert claim_entry(world, claim) is None
            deallocate(world, claim)
            await world.until(lambda: pod_charge(world, "p") == BOUND)
            assert devices_of(world.entry("p")) == []
            assert not world.drift


async def test_allocation_above_the_bound_is_charged_with_its_cause():
    async with full_world(settle_seconds=4) as world:
        serve_claims(world)
        make_template(world)
        async with settling(world):
            await world.synced()
            pod = await reviewed_pod(world)
            allocate(world, generated(world, pod), memory="16Gi")
            more = {**BOUND, "nvidia.com/gpumem": 16_384}
            await world.until(lambda: pod_charge(world, "p") == more)
            assert world.drift == {Cause.ALLOCATED: 1}


async def test_pod_and_claim_are_released_when_both_are_deleted():
    async with full_world(settle_seconds=4) as world:
        serve_claims(world)
        make_template(world)
        async with settling(world):
            await world.synced()
            pod = await reviewed_pod(world)
            claim = generated(world, pod)
            allocate(world, claim)
            await world.until(lambda: pod_charge(world, "p") == GIVEN)
            world.server.delete("pods", "red", "p")
            world.server.delete(CLAIMS.name, "red", claim)
            await world.until(lambda: world.entry("p") is None)
            await asyncio.sleep(12)
            assert claim_entry(world, claim) is None


async def test_claim_that_is_deleted_first_returns_its_pod_to_the_bound():
    async with full_world(settle_seconds=4) as world:
        serve_claims(world)
        make_template(world)
        async with settling(world):
            await world.synced()
            pod = await reviewed_pod(world)
            claim = generated(world, pod)
            allocate(world, claim)
            await world.until(lambda: pod_charge(world, "p") == GIVEN)
            world.server.delete(CLAIMS.name, "red", claim)
            await world.until(lambda: pod_charge(world, "p") == BOUND)
            assert devices_of(world.entry("p")) == []


async def test_writes_that_change_no_charge_send_no_command():
    async with full_world(settle_seconds=4) as world:
        serve_claims(world)
        make_template(world)
        async with settling(world):
            await world.synced()
            pod = await reviewed_pod(world)
            claim = generated(world, pod)
            allocate(world, claim)
            await world.until(lambda: pod_charge(world, "p") == GIVEN)
            before = len(world.asked)
            for number in range(20):
                finalizers = [f"example.org/{number}"]
                world.server.update(CLAIMS.name, "red", claim, metadata={"finalizers": finalizers})
                reserved = [{"resource": "pods", "name": f"p{number}", "uid": "u"}]
                world.server.update(CLAIMS.name, "red", claim, status={"reservedFor": reserved})
                world.server.update("pods", "red", "p", status={"phase": "Running"})
            await asyncio.sleep(8)
            assert world.asked[before:] == []


async def test_claim_waits_for_the_pod_that_names_it_later():
    async with full_world(settle_seconds=4) as world:
        serve_claims(world)
        make_template(world)
        async with settling(world):
            await world.synced()
            pod = await reviewed_pod(world)
            make_claim(world, "p-g-x", pod)
            allocate(world, "p-g-x")
            await asyncio.sleep(3)
            show_claim(world, "p", "p-g-x")
            await world.until(lambda: pod_charge(world, "p") == GIVEN)
            await asyncio.sleep(12)
            assert claim_entry(world, "p-g-x") is None
            assert commands_about(world, f"{CLAIMS.name}/p-g-x") == []


async def test_claim_is_charged_alone_when_no_pod_names_it_in_time():
    async with full_world(settle_seconds=4) as world:
        serve_claims(world)
        make_template(world)
        async with settling(world):
            await world.synced()
            pod = await reviewed_pod(world)
            generated(world, pod)
            forged = make_claim(world, "forged", pod)
            await asyncio.sleep(3)
            assert claim_entry(world, "forged") is None
            assert world.settlement.unnamed_claims == 1
            await world.until(lambda: charge_of(claim_entry(world, "forged")) == BOUND)
            assert claim_entry(world, "forged").committed.uid == forged["metadata"]["uid"]
            assert pod_charge(world, "p") == BOUND
            assert world.drift == {Cause.UNRESERVED: 1}
            assert world.settlement.unnamed_claims == 0
            assert world.counted["resource_claims_alone_total",] == 1


async def test_claim_is_charged_alone_when_another_pod_names_it():
    async with full_world(settle_seconds=4) as world:
        serve_claims(world)
        make_template(world)
        async with settling(world):
            await world.synced()
            owner, other = await reviewed_pod(world, "owner"), await reviewed_pod(world, "other")
            assert other["metadata"]["uid"] != owner["metadata"]["uid"]
            make_claim(world, "c", owner)
            show_claim(world, "other", "c")
            await asyncio.sleep(4)
            await world.until(lambda: charge_of(claim_entry(world, "c")) == BOUND)


async def test_claim_of_an_ended_pod_is_charged_alone_while_it_exists():
    async with full_world(settle_seconds=4) as world:
        serve_claims(world)
        make_template(world)
        async with settling(world):
            await world.synced()
            claim = generated(world, await reviewed_pod(world))
            allocate(world, claim)
            await world.until(lambda: pod_charge(world, "p") == GIVEN)
            world.server.update("pods", "red", "p", status={"phase": "Succeeded"})
            await world.until(lambda: world.entry("p") is None)
            await asyncio.sleep(4)
            await world.until(lambda: charge_of(claim_entry(world, claim)) == GIVEN)
            world.server.delete(CLAIMS.name, "red", claim)
            await world.until(lambda: claim_entry(world, claim) is None)


async def test_claim_with_a_reservation_of_its_own_is_not_charged_with_its_pod():
    async with full_world(settle_seconds=4) as world:
        serve_claims(world)
        make_template(world)
        async with settling(world):
            await world.synced()
            pod = await reviewed_pod(world)
            await reserve_key(world, f"{CLAIMS.name}/p-g-x", "claim-uid")
            make_claim(world, "p-g-x", pod, uid="claim-uid")
            show_claim(world, "p", "p-g-x")
            await world.until(lambda: charge_of(claim_entry(world, "p-g-x")) == BOUND)
            allocate(world, "p-g-x")
            await world.until(lambda: charge_of(claim_entry(world, "p-g-x")) == GIVEN)
            await world.until(lambda: pod_charge(world, "p") == {})
            assert devices_of(world.entry("p")) == []
            assert not world.drift


async def test_template_after_its_pods_raises_no_charge_until_claims_exist():
    async with full_world(settle_seconds=4) as world:
        serve_claims(world)
        async with settling(world):
            await world.synced()
            pod = make_pod(world, "p", uid="u")
            make_template(world)
            await asyncio.sleep(1)
            world.server.update("pods", "red", "p", status={"phase": "Running"})
            await asyncio.sleep(8)
            assert world.entry("p") is None
            generated(world, pod)
            await world.until(lambda: pod_charge(world, "p") == BOUND)
            assert world.drift == {Cause.UNRESERVED: 1}


async def test_reserved_pod_keeps_its_charge_when_claims_cannot_be_listed():
    async with full_world(settle_seconds=4) as world:
        serve_claims(world)
        make_template(world)
        async with settling(world):
            await world.synced()
            claim = generated(world, await reviewed_pod(world))
            allocate(world, claim)
            await world.until(lambda: pod_charge(world, "p") == GIVEN)
        world.cluster.forbidden[CLAIMS.name] = "may not list claims"
        make_pod(world, "unreviewed")
        before = len(world.asked)
        async with settling(world):
            await world.until(lambda: pods_are_listed(world))
            world.server.update("pods", "red", "p", status={"phase": "Running"})
            await asyncio.sleep(8)
            assert pod_charge(world, "p") == GIVEN
            assert devices_of(world.entry("p")) == [(claim, "gpu-0")]
            assert world.entry("unreviewed") is None
            assert [item for item in world.asked[before:] if isinstance(item, Observe)] == []
            assert any("may not list" in line for line in world.settlement.warnings())


async def test_gated_pod_is_noted_with_the_demand_of_its_claims():
    async with full_world(settle_seconds=4) as world:
        serve_claims(world)
        make_template(world)
        async with settling(world):
            await world.synced()
            gates = [{"name": GATE}]
            pod = make_pod(world, "p", schedulingGates=gates)
            generated(world, pod)
            await world.until(lambda: ("gate", "red", "p") in world.cluster.writes)
            assert world.entry("p").charge == BOUND
            assert not world.drift


async def test_restart_charges_the_same_as_before():
    async with full_world(settle_seconds=4) as world:
        serve_claims(world)
        make_template(world)
        async with settling(world):
            await world.synced()
            claim = generated(world, await reviewed_pod(world))
            await world.until(lambda: pod_charge(world, "p") == BOUND)
        allocate(world, claim)
        async with settling(world):
            await world.synced()
            await world.until(lambda: pod_charge(world, "p") == GIVEN)
        before = len(world.asked)
        async with settling(world):
            await world.synced()
            await asyncio.sleep(12)
            assert [item for item in world.asked[before:] if isinstance(item, Observe)] == []


async def test_pod_is_charged_once_for_extended_resources():
    async with full_world(settle_seconds=4) as world:
        serve_claims(world)
        limits = {"nvidia.com/gpu": "1"}
        whole = {"nvidia.com/gpu": 1, "nvidia.com/gpucores": 100, "nvidia.com/gpumem": 80_000}
        async with settling(world):
            await world.synced()
            await reserve_key(world, "pods/p", "u", whole)
            pod = make_pod(world, "p", uid="u", limits=limits, resourceClaims=[])
            annotation = ("resource.kubernetes.io/extended-resource-claim", "true")
            make_claim(world, "p-ext", pod, annotation=annotation)
            mapping = {
                "containerName": "main",
                "resourceName": "nvidia.com/gpu",
                "requestName": "container-0-request-0",
            }
            status = {"resourceClaimName": "p-ext", "requestMappings": [mapping]}
            world.server.update("pods", "red", "p", status={"extendedResourceClaimStatus": status})
            await world.until(lambda: pod_charge(world, "p") == whole)
            allocate(world, "p-ext", memory="40Gi", cores="50")
            given = {"nvidia.com/gpu": 1, "nvidia.com/gpucores": 50, "nvidia.com/gpumem": 40_960}
            await world.until(lambda: pod_charge(world, "p") == given)
            assert devices_of(world.entry("p")) == [("p-ext", "gpu-0")]
            await asyncio.sleep(12)
            assert claim_entry(world, "p-ext") is None
            deallocate(world, "p-ext")
            await world.until(lambda: pod_charge(world, "p") == whole)
