"""Claims that are made for pods: their pods are charged, and settled to what was allocated."""

import asyncio
from contextlib import aclosing

from support.claims.claim_settlement import (
    allocated_pod,
    charged_pod,
    pod_is_charged,
    settled_claims,
)
from support.fakes.apiserver import quota_body
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
    reviewed_pod,
    serve_claims,
    show_claim,
)
from support.harness.settlement import full_world, settling

from ledger.core.model.commands import Observe
from ledger.core.model.events import Cause
from ledger.kube.api.api_resources import (
    CLAIM_TEMPLATES,
    CLAIMS,
    DEVICE_CLASSES,
    RESOURCE_SLICES,
)
from ledger.kube.api.pod_gates import GATE


def pods_are_listed(world) -> bool:
    active = world.settlement._active
    return active is not None and "pods" not in active.informers.waiting


async def test_pod_is_settled_to_the_allocation_and_back_to_the_bound():
    async with settled_claims() as world:
        claim = await charged_pod(world)
        allocate(world, claim)
        await pod_is_charged(world, GIVEN)
        assert devices_of(world.entry("p")) == [(claim, "gpu-0")]
        assert claim_entry(world, claim) is None
        deallocate(world, claim)
        await pod_is_charged(world, BOUND)
        assert devices_of(world.entry("p")) == []
        assert not world.drift


async def test_allocation_above_the_bound_is_charged_with_its_cause():
    async with settled_claims() as world:
        pod = await reviewed_pod(world)
        allocate(world, generated(world, pod), memory="16Gi")
        more = {**BOUND, "nvidia.com/gpumem": 16_384}
        await pod_is_charged(world, more)
        assert world.drift == {Cause.ALLOCATED: 1}


async def test_pod_and_claim_are_released_when_both_are_deleted():
    async with settled_claims() as world:
        claim = await allocated_pod(world)
        world.server.delete("pods", "red", "p")
        world.server.delete(CLAIMS.name, "red", claim)
        await world.until(lambda: world.entry("p") is None)
        await asyncio.sleep(12)
        assert claim_entry(world, claim) is None


async def test_claim_that_is_deleted_first_returns_its_pod_to_the_bound():
    async with settled_claims() as world:
        claim = await allocated_pod(world)
        world.server.delete(CLAIMS.name, "red", claim)
        await pod_is_charged(world, BOUND)
        assert devices_of(world.entry("p")) == []


async def test_writes_that_change_no_charge_send_no_command():
    async with settled_claims() as world:
        claim = await allocated_pod(world)
        before = len(world.asked)
        for number in range(20):
            finalizers = [f"example.org/{number}"]
            world.server.update(CLAIMS.name, "red", claim, metadata={"finalizers": finalizers})
            reserved = [{"resource": "pods", "name": f"p{number}", "uid": "u"}]
            world.server.update(CLAIMS.name, "red", claim, status={"reservedFor": reserved})
            world.server.update("pods", "red", "p", status={"phase": "Running"})
        await asyncio.sleep(8)
        assert world.asked[before:] == []


async def test_template_after_its_pods_raises_no_charge_until_claims_exist():
    async with settled_claims(template=False) as world:
        pod = make_pod(world, "p", uid="u")
        make_template(world)
        await asyncio.sleep(1)
        world.server.update("pods", "red", "p", status={"phase": "Running"})
        await asyncio.sleep(8)
        assert world.entry("p") is None
        generated(world, pod)
        await pod_is_charged(world, BOUND)
        assert world.drift == {Cause.UNRESERVED: 1}


async def test_reserved_pod_keeps_its_charge_when_claims_cannot_be_listed():
    async with full_world(settle_seconds=4) as world:
        serve_claims(world)
        make_template(world)
        async with settling(world):
            await world.synced()
            claim = await allocated_pod(world)
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
    async with settled_claims() as world:
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
            claim = await charged_pod(world)
        allocate(world, claim)
        async with settling(world):
            await world.synced()
            await pod_is_charged(world, GIVEN)
        before = len(world.asked)
        async with settling(world):
            await world.synced()
            await asyncio.sleep(12)
            assert [item for item in world.asked[before:] if isinstance(item, Observe)] == []


async def test_pod_is_charged_once_for_extended_resources():
    async with settled_claims() as world:
        limits = {"nvidia.com/gpu": "1"}
        whole = {"nvidia.com/gpu": 1, "nvidia.com/gpucores": 100, "nvidia.com/gpumem": 80_000}
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
        await pod_is_charged(world, whole)
        allocate(world, "p-ext", memory="40Gi", cores="50")
        given = {"nvidia.com/gpu": 1, "nvidia.com/gpucores": 50, "nvidia.com/gpumem": 40_960}
        await pod_is_charged(world, given)
        assert devices_of(world.entry("p")) == [("p-ext", "gpu-0")]
        await asyncio.sleep(12)
        assert claim_entry(world, "p-ext") is None
        deallocate(world, "p-ext")
        await pod_is_charged(world, whole)


async def test_allocation_counts_when_it_comes_while_owners_are_read():
    async with settled_claims() as world:
        claim = await charged_pod(world)
        honest, read = world.cluster.get_object, asyncio.Event()

        async def slow(*where):
            await read.wait()
            return await honest(*where)

        world.cluster.get_object = slow
        owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "r", "uid": "r"}
        owners = [{**owner, "controller": True}]
        world.server.update("pods", "red", "p", metadata={"ownerReferences": owners})
        await asyncio.sleep(0.5)
        allocate(world, claim)
        await asyncio.sleep(0.5)
        read.set()
        await pod_is_charged(world, GIVEN)
        await asyncio.sleep(3)
        assert pod_charge(world, "p") == GIVEN


async def test_late_observation_does_not_bring_back_a_deleted_pod():
    async with settled_claims() as world:
        world.server.create(
            "resourcequotas", "red", quota_body("q", **{"limits.nvidia.com/gpu": "0"})
        )
        await world.until(lambda: world.limits("q") is not None)
        owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "r", "uid": "r"}
        pod = make_pod(world, "p", schedulingGates=[{"name": GATE}])
        owners = [{**owner, "controller": True}]
        world.server.update("pods", "red", "p", metadata={"ownerReferences": owners})
        await asyncio.sleep(1)
        assert world.settlement.waiting == 1
        honest, read = world.cluster.get_object, asyncio.Event()
        show_claim(world, "p", "p-g-x")
        await asyncio.sleep(1)

        async def slow(*where):
            await read.wait()
            return await honest(*where)

        world.cluster.get_object = slow
        make_claim(world, "p-g-x", pod)
        await asyncio.sleep(0.5)
        world.server.delete("pods", "red", "p")
        await asyncio.sleep(0.5)
        assert world.settlement.waiting == 0
        read.set()
        await asyncio.sleep(3)
        assert world.settlement.waiting == 0


async def test_devices_are_recorded_when_the_allocation_takes_the_bound():
    async with settled_claims() as world:
        claim = await charged_pod(world)
        allocate(world, claim, memory="8Gi")
        await world.until(lambda: devices_of(world.entry("p")) == [(claim, "gpu-0")])
        assert pod_charge(world, "p") == BOUND


async def test_claims_are_listed_after_supply_and_before_pods(monkeypatch):
    async with full_world() as world:
        serve_claims(world)
        listed, honest, watch = [], world.server.list, world.cluster.watch_filtered

        async def slow(resource, keep):
            await asyncio.sleep(1 if resource == CLAIMS else 0)
            async with aclosing(watch(resource, keep)) as changes:
                async for change in changes:
                    yield change

        def noted(kind, namespace=""):
            listed.append(kind)
            return honest(kind, namespace)

        monkeypatch.setattr(world.server, "list", noted)
        monkeypatch.setattr(world.cluster, "watch_filtered", slow)
        async with settling(world):
            await world.synced()
        of = listed.index
        supply = (CLAIM_TEMPLATES.name, DEVICE_CLASSES.name, RESOURCE_SLICES.name)
        assert all(of(kind) < of(CLAIMS.name) < of("pods") for kind in supply)
        assert all(of(kind) < of("deployments.apps") for kind in supply)


async def test_passive_replica_forgets_the_claims():
    async with full_world() as world:
        serve_claims(world)
        make_template(world)
        async with settling(world):
            await world.synced()
            await charged_pod(world)
            assert len(world.context.resource_claims.claims) == 1
        assert len(world.context.resource_claims.claims) == 0


async def test_forged_status_of_a_pod_does_not_hide_its_allocated_claim():
    """A tenant who may write it could else name a smaller claim, and use the larger one."""
    async with settled_claims() as world:
        claim = await allocated_pod(world)
        pod = world.server.objects["pods", "red", "p"]
        key = f"{CLAIMS.name}/tiny"
        await reserve_key(world, key, "uid-of-tiny", {"nvidia.com/gpu": 1})
        make_claim(world, "tiny", pod, uid="uid-of-tiny", memory="1Gi")
        await world.until(lambda: bool(charge_of(claim_entry(world, "tiny"))))
        before = len(world.asked)
        show_claim(world, "p", "tiny")
        await world.until(lambda: not world.entry("p").charge)
        seen = [item.key for item in world.asked[before:] if isinstance(item, Observe)]
        assert seen.index(f"{CLAIMS.name}/{claim}") < seen.index("pods/p")
        assert charge_of(claim_entry(world, claim)) == GIVEN
