"""Resource claims on a real API server, kube-scheduler and kube-controller-manager."""

import asyncio
from typing import Final

import pytest
import pytest_asyncio

from gpuledger.demo.narration import Narrator
from tests.e2e.harness.agreement import CLAIM_KEY
from tests.e2e.harness.authorization import EVERYTHING, grant
from tests.e2e.harness.cluster import Manifest
from tests.e2e.harness.controlplane import TENANT
from tests.e2e.objects.pods import MEMORY
from tests.e2e.resource_claims.support import claim_supply
from tests.e2e.resource_claims.support.claim_agreement import ledger_is_cluster
from tests.e2e.resource_claims.support.claim_cluster import ClaimCluster
from tests.e2e.resource_claims.support.claim_manifests import (
    ON_H100,
    claim,
    exactly,
    first_available,
    pod_with,
    template,
)
from tests.e2e.resource_claims.support.claim_story import ClaimStory
from tests.e2e.resource_claims.support.claim_supply import (
    API,
    H100,
    H100_NODE,
    SHARED,
    SHARED_DRIVER,
    SMALL,
    SMALL_BOUND,
    SMALL_CONSUMED,
    WHOLE,
    WHOLE_MIB,
)
from tests.e2e.resource_claims.support.claim_team import TEMPLATE_OF, ClaimTeam

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.timeout(300),
    pytest.mark.asyncio(loop_scope="session"),
]

COUNT_MAX: Final = 2**63 - 1
EXTENDED: Final = "resource.kubernetes.io/extended-resource-claim"
CONTROLLER: Final = "system:serviceaccount:kube-system:resource-claim-controller"
LARGE: Final = "20Gi"
LARGE_MIB: Final = 20_480
PLENTY: Final = 1_000_000


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def yard(yard: ClaimCluster) -> ClaimCluster:
    """Return the cluster with all rights for a tenant."""
    await grant(yard.cluster, TENANT, EVERYTHING)
    return yard


def of_pod(pod: Manifest, name: str, *requests: Manifest, use: str = "t0") -> Manifest:
    """Return a claim as the controller makes it for a pod, by the name of its use there."""
    owner = {
        "apiVersion": "v1",
        "kind": "Pod",
        "name": pod["metadata"]["name"],
        "uid": pod["metadata"]["uid"],
        "controller": True,
        "blockOwnerDeletion": True,
    }
    return claim(name, *requests, ownerReferences=[owner], annotations={TEMPLATE_OF: use})


async def test_a_pod_is_charged_for_its_claim_from_template_to_release(team: ClaimTeam) -> None:
    teller = Narrator()
    teller.opening("The way of a pod with a resource claim.")
    teller.line("API server, kube-scheduler, kube-controller-manager and gpuledger are real.")
    teller.line("Played are the kubelets, and the drivers by the slices that they would publish.")
    await ClaimStory(team, teller).go()


async def test_more_devices_than_a_claim_may_have_are_refused(team: ClaimTeam) -> None:
    await team.open(memory=PLENTY, cards=PLENTY)
    for count in (33, COUNT_MAX):
        much = exactly(count=count)
        await team.refused(claim("much", much), "TooManyDevices", str(count), "32")
        await team.refused(template("much", much), "TooManyDevices", str(count), "32")
    halves = exactly(count=16), exactly(count=17)
    await team.refused(claim("halves", *halves), "TooManyDevices", "33", "32")
    await team.make(claim("most", exactly(H100, memory="1Gi", cores="1", count=32)))
    await team.charge_is(cards=32, memory=32 * 1024)
    await ledger_is_cluster(team)


async def test_a_capacity_is_the_same_with_and_without_its_domain(team: ClaimTeam) -> None:
    await team.open(memory=2 * SMALL_BOUND)
    asked = exactly(memory=SMALL)
    asked["capacity"]["requests"] = {f"{SHARED_DRIVER}/memory": SMALL}
    await team.make(claim("plain", exactly(memory=SMALL)), claim("full", asked))
    await team.charge_is(memory=2 * SMALL_BOUND)
    asked["capacity"]["requests"]["memory"] = "1Gi"
    await team.refused(claim("both", asked), "InvalidQuantity", "twice")


async def test_two_requests_on_one_device_are_both_charged(team: ClaimTeam) -> None:
    await team.open(memory=PLENTY, cards=PLENTY, cores=PLENTY)
    part = exactly(H100, memory=SMALL, cores="20")
    await team.make(template("two", part, part), pod_with("web", templates=("two",)))
    [allocated] = await team.allocated(1)
    results = allocated["status"]["allocation"]["devices"]["results"]
    assert len(results) == 2
    await team.charge_is(memory=2 * SMALL_CONSUMED, cards=2, cores=40)
    held = await team.holder("pods/web")
    assert held is not None
    shares = {(device["device"], device["share"]) for device in held["devices"]}
    assert shares == {(result["device"], result["shareID"]) for result in results}
    await ledger_is_cluster(team)


async def test_a_whole_card_is_charged_whole_and_the_first_available_most(
    team: ClaimTeam,
) -> None:
    await team.open(memory=PLENTY, cards=PLENTY, cores=PLENTY)
    choice = first_available(exactly(WHOLE), exactly(memory="70Gi", cores="5", count=2))
    await team.make(claim("choice", choice))
    await team.charge_is(memory=2 * 71_680, cards=2, cores=100)
    await team.make(pod_with("web", claims=("choice",)))
    await team.allocated(1)
    await team.charge_is(memory=WHOLE_MIB, cards=1, cores=100)
    await ledger_is_cluster(team)
    await team.remove("Pod", "web")
    await team.remove("ResourceClaim", "choice")
    await team.charge_is(memory=0, cards=0, cores=0)


async def test_a_larger_claim_of_a_template_is_decided_again(
    team: ClaimTeam, yard: ClaimCluster
) -> None:
    await team.open(memory=LARGE_MIB + SMALL_BOUND)
    await team.make(template("part", exactly(memory=SMALL)))
    with yard.paused_controllers():
        [a, b] = await team.make(
            *(pod_with(name, templates=("part",), on=ON_H100) for name in ("a", "b"))
        )
        await team.charge_is(memory=2 * SMALL_BOUND)
        await team.remove("ResourceClaimTemplate", "part")
        await team.make(template("part", exactly(memory=LARGE)))
        large = exactly(memory=LARGE)
        await team.refused(of_pod(a, "too-much", large), "QuotaExceeded", user=CONTROLLER)
        await team.remove("Pod", "b")
        await team.charge_is(memory=SMALL_BOUND)
        assert (await team.attempt(of_pod(a, "own", large), CONTROLLER)).status == 201
        await team.charge_is(memory=LARGE_MIB)
        left = of_pod(b, "left", exactly(memory="15Gi"))
        await team.refused(left, "QuotaExceeded", user=CONTROLLER)
    await team.allocated(1)
    await team.charge_is(memory=LARGE_MIB)
    assert await team.holder(f"{CLAIM_KEY}own") is not None
    await ledger_is_cluster(team)
    await team.remove("Pod", "a")
    await team.charge_is(memory=0)


async def test_a_claim_of_a_later_template_is_refused_when_it_is_too_large(
    team: ClaimTeam,
) -> None:
    await team.open(memory=SMALL_BOUND)
    await team.make(pod_with("web", templates=("late",)))
    await team.make(template("late", exactly(memory=LARGE)))

    async def denials() -> list[str]:
        events = await team.cluster.items(f"{team.path}/events")
        return [each["message"] for each in events if "ExceedsLimit" in each["message"]]

    await team.until(denials, bool, "the controller reports the denial at the pod")
    await team.charge_is(memory=0)


async def test_a_template_that_comes_later_is_charged_with_its_claim(team: ClaimTeam) -> None:
    await team.open(memory=SMALL_BOUND)
    answer = await team.attempt(pod_with("web", templates=("late",), on=team.gate))
    assert answer.status == 201, answer
    assert answer.warnings, "the user reads that the template does not exist"
    await team.charge_is(memory=0)
    await team.make(template("late", exactly(memory=SMALL)))
    [made] = await team.claims_are(1)
    await team.charge_is(memory=SMALL_BOUND)
    await team.refused(claim("more", exactly(memory="1Gi")), "QuotaExceeded")
    await team.open_gate(H100_NODE)
    await team.allocated(1)
    await team.charge_is(memory=SMALL_CONSUMED)
    await team.remove("Pod", "web")
    await team.charge_is(memory=0)
    assert made["metadata"]["annotations"][TEMPLATE_OF] == "t0"


async def test_a_claim_that_names_a_pod_is_charged_itself(
    team: ClaimTeam, yard: ClaimCluster
) -> None:
    await team.open(memory=3 * SMALL_BOUND)
    part = exactly(memory=SMALL)
    await team.make(template("part", part))
    with yard.paused_controllers():
        [a, b] = await team.make(
            *(pod_with(name, templates=("part",), on=team.gate) for name in ("a", "b"))
        )
        await team.charge_is(memory=2 * SMALL_BOUND)
        # It is what the controller would make, and no other claim of the pod exists.
        assert (await team.attempt(of_pod(a, "forged", part), TENANT)).status == 201
        reserved = [row["key"] for row in await team.reservations()]
        assert reserved == ["pods/a", "pods/b", f"{CLAIM_KEY}forged"]
        # The pod's charge for its only claim is now the charge of this claim.
        await team.charge_is(memory=2 * SMALL_BOUND)
        assert (await team.attempt(of_pod(b, "real", part), CONTROLLER)).status == 201
        await team.charge_is(memory=2 * SMALL_BOUND)
        assert await team.holder(f"{CLAIM_KEY}real") is None
        assert (await team.attempt(of_pod(b, "second", part), CONTROLLER)).status == 201
        await team.charge_is(memory=3 * SMALL_BOUND)
        for user in (TENANT, CONTROLLER, "system:kube-scheduler"):
            more = of_pod(b, "more", exactly(memory="1Gi"), use="t1")
            more["metadata"]["annotations"] |= {EXTENDED: "true"}
            await team.refused(more, "QuotaExceeded", user=user)
    await team.claims_are(3)
    await team.charge_is(memory=3 * SMALL_BOUND)


async def test_a_pod_keeps_its_charge_when_its_claim_is_deleted(team: ClaimTeam) -> None:
    await team.open(memory=SMALL_BOUND)
    await team.make(template("part", exactly(memory=SMALL)))
    await team.make(pod_with("web", templates=("part",), on=ON_H100))
    [made] = await team.allocated(1)
    await team.charge_is(memory=SMALL_CONSUMED)
    # The claim is in use, so it keeps its allocation until the pod is gone.
    await team.remove("ResourceClaim", made["metadata"]["name"])
    await ledger_is_cluster(team)
    await team.charge_is(memory=SMALL_CONSUMED)
    await team.remove("Pod", "web")
    await team.claims_are(0)
    await team.charge_is(memory=0)


async def test_a_limit_of_a_type_holds_for_claims_of_any_type(team: ClaimTeam) -> None:
    await team.open(memory=PLENTY)
    h100 = f"h100.{MEMORY}"
    await team.limit({f"limits.{h100}": str(SMALL_CONSUMED)}, name="types")
    await team.make(claim("first", exactly(memory=SMALL)))
    await team.refused(claim("second", exactly(memory=SMALL)), "QuotaExceeded", "of type h100")
    await team.make(pod_with("web", claims=("first",), on=ON_H100))
    await team.allocated(1)
    await team.charge_is(memory=SMALL_CONSUMED)
    held = await team.holder(CLAIM_KEY + "first")
    assert held is not None
    assert held["amounts"][h100] == SMALL_CONSUMED
    assert f"a100.{MEMORY}" not in held["amounts"]
    assert await team.service.get("/v1/drift", namespace=team.namespace) == []
    await ledger_is_cluster(team)


async def test_two_claims_race_for_the_last_room_and_one_gets_it(team: ClaimTeam) -> None:
    await team.open(memory=SMALL_BOUND)
    answers = await asyncio.gather(
        *(team.attempt(claim(f"c{index}", exactly(memory=SMALL))) for index in range(8))
    )
    assert sorted(answer.status for answer in answers) == [201] + [403] * 7
    await team.charge_is(memory=SMALL_BOUND)
    await ledger_is_cluster(team)


async def test_an_edited_class_changes_new_claims_and_no_charge(team: ClaimTeam) -> None:
    await team.open(memory=32 * SMALL_BOUND)
    shared = f"device.driver == '{SHARED_DRIVER}'"
    product = f"device.attributes['{SHARED_DRIVER}'].productName"
    name = f"class-{team.namespace}"
    h100 = claim_supply.device_class(name, f"{shared} && {product} == 'NVIDIA H100 80GB HBM3'")
    await team.cluster.must("POST", f"{API}/deviceclasses", h100)
    await team.make(claim("before", exactly(name, memory=SMALL)))
    await team.charge_is(memory=SMALL_CONSUMED)
    await team.select_by(name, f"{shared} && {product} == 'NVIDIA A100-SXM4-40GB'")

    most = exactly(name, memory=SMALL, count=32)
    await team.until_refused(claim("after", most), "QuotaExceeded", str(32 * SMALL_BOUND))
    await team.make(claim("after", exactly(name, memory=SMALL)))
    await team.charge_is(memory=SMALL_CONSUMED + SMALL_BOUND)
    await team.select_by(name, "device.driver == 'gpu.unknown.example.com'")
    await team.until_refused(claim("unmapped", exactly(name)), "UnmappedDeviceClass", name)
    await team.charge_is(memory=SMALL_CONSUMED + SMALL_BOUND)


async def test_claim_without_its_pod_returns_to_its_bound(team: ClaimTeam) -> None:
    await team.open(memory=PLENTY)
    part = template("part", exactly(memory=SMALL))
    await team.make(part, pod_with("web", templates=("part",), on=ON_H100))
    [made] = await team.allocated(1)
    await team.charge_is(memory=SMALL_CONSUMED)
    name = made["metadata"]["name"]
    orphan = {"metadata": {"ownerReferences": None}}
    answer = await team.cluster.patch(team.place("ResourceClaim", name), orphan)
    assert answer.status == 200, answer
    assert (await team.reservations())[-1]["key"] == CLAIM_KEY + name
    await team.remove("Pod", "web")
    await team.allocated(0)
    await team.charge_is(memory=SMALL_BOUND)
    assert await team.holder(CLAIM_KEY + name)
    await ledger_is_cluster(team)


async def test_an_extended_resource_of_a_class_is_charged_once(team: ClaimTeam) -> None:
    await team.open(cards=2)
    pod = pod_with("web", on=ON_H100)
    pod["spec"]["containers"][0]["resources"] = {"limits": {"nvidia.com/gpu": "1"}}
    del pod["spec"]["resourceClaims"]
    await team.make(pod)
    await team.charge_is(cards=1)
    [made] = await team.allocated(1)
    await team.charge_is(cards=1)
    assert await team.holder(CLAIM_KEY + made["metadata"]["name"]) is None
    await team.remove("Pod", "web")
    await team.charge_is(cards=0)


async def test_devices_for_administration_are_free_and_all_mode_is_bounded(
    team: ClaimTeam,
) -> None:
    await team.open(memory=PLENTY, cards=PLENTY)
    labels = {"metadata": {"labels": {"resource.kubernetes.io/admin-access": "true"}}}
    await team.cluster.patch(f"/api/v1/namespaces/{team.namespace}", labels)
    await team.make(claim("watch", exactly(adminAccess=True)))
    every = exactly(SHARED, memory=SMALL, allocationMode="All")
    await team.make(claim("all", every))
    await team.charge_is(memory=2 * SMALL_BOUND, cards=2)
    await ledger_is_cluster(team)
