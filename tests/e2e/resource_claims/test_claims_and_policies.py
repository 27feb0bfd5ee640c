"""Resource claims in quotas over many namespaces, and of pods behind the scheduling gate."""

import uuid
from collections.abc import AsyncIterator
from typing import Any, Final

import pytest
import pytest_asyncio

from tests.e2e.harness.agreement import CLAIM_KEY
from tests.e2e.harness.cluster import Manifest
from tests.e2e.harness.polling import eventually
from tests.e2e.objects.definitions import QUOTAS, quota
from tests.e2e.objects.pods import MEMORY
from tests.e2e.objects.policies import under
from tests.e2e.objects.team import SETTLED_SECONDS
from tests.e2e.resource_claims.support.claim_agreement import ledger_is_cluster
from tests.e2e.resource_claims.support.claim_cluster import ClaimCluster
from tests.e2e.resource_claims.support.claim_manifests import (
    ON_H100,
    claim,
    deployment_with,
    exactly,
    pod_with,
    template,
)
from tests.e2e.resource_claims.support.claim_supply import (
    H100_NODE,
    SMALL,
    SMALL_BOUND,
    SMALL_CONSUMED,
)
from tests.e2e.resource_claims.support.claim_team import ClaimTeam

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.timeout(300),
    pytest.mark.asyncio(loop_scope="session"),
]

LINE: Final = f"limits.{MEMORY}"
LARGE: Final = "12Gi"
LARGE_CONSUMED: Final = 12_288


def labelled(manifest: Manifest, labels: dict[str, str]) -> Manifest:
    """Return an object with labels."""
    return {**manifest, "metadata": {**manifest["metadata"], "labels": labels}}


async def universe(team: ClaimTeam, memory: int, **selecting: Any) -> str:
    """Make a quota over many namespaces, and wait until the ledger has it."""
    manifest = quota(hard={LINE: str(memory)}, **selecting)
    made = await team.cluster.must("POST", QUOTAS, manifest)
    name = str(made["metadata"]["name"])
    await shared_usage_is(team, {name: 0})
    return name


async def shared_usage_is(team: ClaimTeam, wanted: dict[str, int]) -> None:
    """Wait until quotas over many namespaces have these used amounts of memory."""

    async def look() -> dict[str, int]:
        rows = await team.service.get("/v1/usage", limit="5000")
        return {row["quota"]: row["used"] for row in rows if row["quota"] in wanted}

    await eventually(
        look, lambda seen: seen == wanted, within=SETTLED_SECONDS, what=f"used is {wanted}"
    )


async def relabel(team: ClaimTeam, name: str, group: str | None, because: str = "") -> None:
    """Change the group of a claim, which is allowed, or refused with this text."""
    change = {"metadata": {"labels": {"group": group}}}
    answer = await team.cluster.patch(team.place("ResourceClaim", name), change)
    assert answer.status == (403 if because else 200), answer
    assert because in answer.message


async def test_quotas_over_namespaces_count_claims_from_creation_to_release(
    team: ClaimTeam, yard: ClaimCluster
) -> None:
    a, b = teams = team, ClaimTeam(yard)
    for each in teams:
        await each.open()
    group = {"group": uuid.uuid4().hex[:8]}
    wide = await universe(a, 5 * SMALL_BOUND, namespaces=[a.namespace, b.namespace])
    low = await universe(a, 2 * SMALL_BOUND, objectSelector={"matchLabels": group})
    part = exactly(memory=SMALL)
    web = pod_with("web", templates=("part",), on=a.gate)
    await a.make(template("part", part), labelled(web, group))
    await b.make(labelled(claim("own", part), group), claim("other", part))
    await b.make(*(pod_with(name, claims=("own", "other"), on=a.gate) for name in ("x", "y")))
    await shared_usage_is(a, {wide: 3 * SMALL_BOUND, low: 2 * SMALL_BOUND})
    await b.refused(claim("more", exactly(memory="30Gi")), wide, str(3 * SMALL_BOUND))
    one_more = deployment_with("set", 1, templates=("part",), on=a.gate)
    await a.refused(labelled(one_more, group), low, f"{2 * SMALL_BOUND} are used")
    await a.make(one_more)
    await shared_usage_is(a, {wide: 4 * SMALL_BOUND, low: 2 * SMALL_BOUND})
    await relabel(b, "other", group["group"], low)
    await ledger_is_cluster(a, b)

    for each in teams:
        await each.open_gate(H100_NODE)
    await a.allocated(2)
    await b.allocated(2)
    await ledger_is_cluster(a, b)
    await shared_usage_is(a, {low: 2 * SMALL_CONSUMED})
    await a.remove("Deployment", "set")
    await shared_usage_is(a, {wide: 3 * SMALL_CONSUMED, low: 2 * SMALL_CONSUMED})
    await relabel(b, "own", None, "LeavesQuota")
    # Now there is room, and the quota counts what the claim has, not its bound.
    await a.remove("Pod", "web")
    await relabel(b, "other", group["group"])
    await shared_usage_is(a, {wide: 2 * SMALL_CONSUMED, low: 2 * SMALL_CONSUMED})

    await b.remove("Pod", "x", "y")
    await shared_usage_is(a, {wide: 2 * SMALL_BOUND, low: 2 * SMALL_BOUND})
    await b.remove("ResourceClaim", "own", "other")
    await shared_usage_is(a, {wide: 0, low: 0})
    await ledger_is_cluster(a, b)


async def gates(team: ClaimTeam) -> list[str]:
    """Return the names of the pods behind a gate."""
    return sorted(
        each["metadata"]["name"]
        for each in await team.listed("Pod")
        if each["spec"].get("schedulingGates")
    )


async def gates_are(team: ClaimTeam, *names: str) -> None:
    """Wait until exactly these pods are behind a gate."""
    what = f"{names} wait, and no others"
    await eventually(
        lambda: gates(team), lambda seen: seen == [*names], within=SETTLED_SECONDS, what=what
    )


async def waits(team: ClaimTeam, manifest: Manifest) -> None:
    """POST a pod that is created and has to wait."""
    answer = await team.attempt(manifest)
    assert answer.status == 201, answer
    assert any("is created and waits" in warning for warning in answer.warnings), answer


@pytest_asyncio.fixture(loop_scope="session")
async def full_team(team: ClaimTeam) -> AsyncIterator[ClaimTeam]:
    """Return a namespace where pods wait, with too little room beside pod `first` with a claim.

    That pod was scheduled before there was a gate: kube-scheduler forgets, now and then, a pod
    whose gate is removed while its claim is generated.
    """
    await team.open()
    limits = {LINE: str(SMALL_BOUND + SMALL_BOUND // 2), "limits.nvidia.com/gpu": "10"}
    await team.limit(limits)
    await team.make(template("part", exactly(memory=SMALL)))
    await team.make(pod_with("first", templates=("part",), on=ON_H100))
    await team.allocated(1)
    await team.charge_is(memory=SMALL_CONSUMED, cards=1)
    async with under(team, limits, onExceeded="pending"):
        yield team
        await team.clear()
        await team.charge_is(memory=0, cards=0)


async def test_pod_of_a_template_waits_for_room_and_is_counted_once(
    full_team: ClaimTeam, yard: ClaimCluster
) -> None:
    await waits(full_team, pod_with("second", templates=("part",), on=ON_H100))
    await waits(full_team, pod_with("third", templates=("part",), on=ON_H100))
    await gates_are(full_team, "second", "third")
    await ledger_is_cluster(full_team)

    yard.service.kill()
    await yard.run_service()
    await gates_are(full_team, "second", "third")
    await full_team.charge_is(memory=SMALL_CONSUMED, cards=1)
    await ledger_is_cluster(full_team)

    yard.service.kill()
    await full_team.remove("Pod", "first")
    await yard.run_service()
    await gates_are(full_team, "third")
    await full_team.allocated(1)
    await full_team.charge_is(memory=SMALL_CONSUMED, cards=1)
    await ledger_is_cluster(full_team)
    held = await full_team.holder("pods/second")
    assert held is not None
    assert len(held["devices"]) == 1, held
    assert [row["key"] for row in await full_team.reservations()] == ["pods/first", "pods/second"]


async def test_larger_template_of_a_waiting_pod_is_charged_with_its_claim(
    full_team: ClaimTeam, yard: ClaimCluster
) -> None:
    with yard.paused_controllers():
        await waits(full_team, pod_with("second", templates=("part",), on=ON_H100))
        await full_team.remove("ResourceClaimTemplate", "part")
        await full_team.make(template("part", exactly(memory=LARGE)))
        await full_team.remove("Pod", "first")
        await gates_are(full_team)
    [made] = await full_team.allocated(1)
    [request] = made["spec"]["devices"]["requests"]
    # The controller may not have read the new template yet when it goes on.
    is_large = request["exactly"]["capacity"]["requests"]["memory"] == LARGE
    await full_team.charge_is(memory=LARGE_CONSUMED if is_large else SMALL_CONSUMED, cards=1)
    await ledger_is_cluster(full_team)


async def test_claim_of_a_waiting_pod_is_of_no_use_to_another_pod(full_team: ClaimTeam) -> None:
    await waits(full_team, pod_with("second", templates=("part",), on=ON_H100))
    made = await full_team.claims_are(2)
    [name] = [each["metadata"]["name"] for each in made if "second" in each["metadata"]["name"]]
    await full_team.refused(pod_with("thief", claims=(name,), on=ON_H100), "ClaimOfOtherPod")
    await full_team.charge_is(memory=SMALL_CONSUMED, cards=1)
    assert await full_team.holder(CLAIM_KEY + name) is None
