"""Claims that are charged at their own key: reserved, settled, released and recounted."""

import asyncio

import pytest
from support.claims.claim_settlement import claim_is_charged, settled_claims
from support.fakes.apiserver import pod_body
from support.fakes.claimed_cluster import (
    BOUND,
    CLASS,
    GIVEN,
    allocate,
    charge_of,
    claim_entry,
    days_ago,
    deallocate,
    devices_of,
    make_claim,
    make_pod,
    reserve_key,
    serve_claims,
)
from support.harness.settlement import DEMAND, full_world, settling

from ledger.core.model.events import Cause
from ledger.kube.api.api_resources import CLAIMS, POLICIES
from ledger.kube.api.cluster_errors import ClusterUnavailable
from ledger.kube.watch import failed_objects
from webhook.settlement.drift_counter import UNENFORCED

KEY = f"{CLAIMS.name}/c"


async def test_claim_is_committed_settled_and_released():
    async with settled_claims() as world:
        await reserve_key(world, KEY, "u")
        make_claim(world, "c", uid="u")
        await claim_is_charged(world, "c", BOUND)
        allocate(world, "c")
        await claim_is_charged(world, "c", GIVEN)
        assert devices_of(claim_entry(world, "c")) == [("c", "gpu-0")]
        deallocate(world, "c")
        await claim_is_charged(world, "c", BOUND)
        assert devices_of(claim_entry(world, "c")) == []
        world.server.delete(CLAIMS.name, "red", "c")
        await world.until(lambda: claim_entry(world, "c") is None)
        assert world.state.ended["u"].cause == Cause.DELETED
        assert not world.drift


async def test_claim_is_charged_once_when_several_pods_name_it():
    async with settled_claims() as world:
        make_claim(world, "c")
        named = [{"name": "g", "resourceClaimName": "c"}]
        for name in ("p", "q"):
            make_pod(world, name, resourceClaims=named)
        await claim_is_charged(world, "c", BOUND)
        await asyncio.sleep(12)
        assert world.entry("p") is None
        assert world.entry("q") is None
        assert world.drift == {Cause.UNRESERVED: 1}


async def test_consumers_of_a_claim_send_no_command():
    async with settled_claims() as world:
        make_claim(world, "c")
        allocate(world, "c")
        await claim_is_charged(world, "c", GIVEN)
        before = len(world.asked)
        for number in range(20):
            reserved = [{"resource": "pods", "name": f"p{number}", "uid": "u"}]
            world.server.update(CLAIMS.name, "red", "c", status={"reservedFor": reserved})
        await asyncio.sleep(2)
        assert len(world.asked) == before


async def test_unwritten_claim_is_released_by_proof():
    async with settled_claims(settle_seconds=5) as world:
        await reserve_key(world, KEY, "u")
        await world.until(lambda: claim_entry(world, "c") is None)
        assert world.state.ended["u"].cause == Cause.ABSENT


async def test_unwritten_claim_is_released_when_another_has_its_name():
    async with settled_claims(settle_seconds=5) as world:
        await reserve_key(world, KEY, "first")
        make_claim(world, "c", uid="first")
        await claim_is_charged(world, "c", BOUND)
        await reserve_key(world, KEY, "second")
        assert len(claim_entry(world, "c").holds) == 1
        await claim_is_charged(world, "c", BOUND)
        assert claim_entry(world, "c").committed.uid == "first"


@pytest.mark.parametrize("served", [True, False])
async def test_time_alone_releases_no_claim_without_a_list(served):
    async with settled_claims(settle_seconds=1) as world:
        await reserve_key(world, KEY, "u")
        if served:
            world.server.failing = ClusterUnavailable("etcd is down")
        else:
            del world.cluster.kinds[CLAIMS.name]
        await asyncio.sleep(10)
        assert claim_entry(world, "c").holds
        world.server.failing = None
        world.cluster.kinds[CLAIMS.name] = CLAIMS
        await world.until(lambda: claim_entry(world, "c") is None)


async def test_changes_during_a_gap_are_recounted():
    async with full_world() as world:
        serve_claims(world)
        async with settling(world):
            await world.synced()
            for name in ("stays", "goes"):
                make_claim(world, name, uid=f"uid-of-{name}")
            await claim_is_charged(world, "stays", BOUND)
            await claim_is_charged(world, "goes", BOUND)
        world.server.delete(CLAIMS.name, "red", "goes")
        make_claim(world, "comes")
        allocate(world, "stays")
        async with settling(world):
            await world.synced()
            assert charge_of(claim_entry(world, "stays")) == GIVEN
            assert charge_of(claim_entry(world, "comes")) == BOUND
            assert claim_entry(world, "goes") is None
            assert world.drift == {Cause.DELETED: 1, Cause.UNRESERVED: 3}


async def test_charges_stay_when_claims_are_no_longer_served():
    async with settled_claims(recount_seconds=5) as world:
        make_claim(world, "c", uid="u")
        await claim_is_charged(world, "c", BOUND)
        del world.cluster.kinds[CLAIMS.name]
        await asyncio.sleep(12)
        assert charge_of(claim_entry(world, "c")) == BOUND
        world.cluster.kinds[CLAIMS.name] = CLAIMS
        allocate(world, "c")
        await claim_is_charged(world, "c", GIVEN)


async def test_cluster_without_claims_is_settled_as_before():
    async with full_world() as world, settling(world):
        await world.synced()
        world.server.create("pods", "red", pod_body("p"))
        await world.until(lambda: world.entry("p") is not None)
        assert world.entry("p").charge == DEMAND
        assert world.settlement.warnings() == []
        assert world.settlement.problems() == []


@pytest.mark.parametrize("listed", [True, False], ids=["listed", "changed"])
async def test_claim_that_cannot_be_read_stops_no_other_claim(listed):
    async with full_world() as world:
        world.fails = True
        serve_claims(world)

        def write() -> None:
            make_claim(world, "bad")
            world.server.update(CLAIMS.name, "red", "bad", spec={"devices": "none"})
            make_claim(world, "good")

        if listed:
            write()
        async with settling(world):
            await world.synced()
            if not listed:
                write()
            await claim_is_charged(world, "good", BOUND)
            what = f"{CLAIMS.name} red/bad: not taken in, ValidationError"
            await world.until(
                lambda: any(line.startswith(what) for line in world.settlement.warnings())
            )
            assert world.settlement.problems() == []
            assert world.counted[failed_objects.METRIC, CLAIMS.name] == 1
            world.server.delete(CLAIMS.name, "red", "bad")
            await world.until(lambda: world.settlement.warnings() == [])


async def test_claims_are_charged_where_a_policy_reviews_nothing():
    async with full_world() as world:
        serve_claims(world)
        spec = {"namespaces": ["red"], "mode": "off"}
        world.server.create(POLICIES.name, "", {"metadata": {"name": "p"}, "spec": spec})
        async with settling(world):
            await world.synced()
            make_claim(world, "c")
            await claim_is_charged(world, "c", BOUND)
            assert world.drift == {UNENFORCED: 1}


async def test_invalid_claim_is_named_and_charged_nothing():
    async with settled_claims() as world:
        body = {"deviceClassName": CLASS, "allocationMode": "ExactCount", "count": 2**63 - 1}
        spec = {"devices": {"requests": [{"name": "g", "exactly": body}]}}
        world.server.create(CLAIMS.name, "red", {"metadata": {"name": "huge"}, "spec": spec})
        await world.until(lambda: world.settlement.invalid_objects == 1)
        assert claim_entry(world, "huge") is None


async def test_unused_claims_are_reported_after_a_day():
    async with full_world() as world:
        serve_claims(world)
        for name, days in (("old", 2), ("new", 0.5), ("used", 2)):
            make_claim(world, name)
            world.server.update(
                CLAIMS.name, "red", name, metadata={"creationTimestamp": days_ago(world, days)}
            )
        allocate(world, "used")
        async with settling(world):
            await world.synced()
            assert world.settlement.unused_claims == 1
            warning = (
                "resource claim red/old: no pod has used it for 48 h and it takes room of the"
                " quotas; delete it if it was left behind"
            )
            assert world.settlement.warnings() == [warning]
            world.server.delete(CLAIMS.name, "red", "old")
            await world.until(lambda: world.settlement.warnings() == [])
            deallocate(world, "used")
            await asyncio.sleep(1)
            assert world.settlement.unused_claims == 0
            world.now += 25 * 3_600_000_000
            assert world.settlement.unused_claims == 2
