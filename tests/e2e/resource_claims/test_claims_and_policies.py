"""Resource claims in quotas over many namespaces, and of pods behind the scheduling gate."""

import uuid
from collections.abc import AsyncIterator
from pathlib import Path
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
from tests.e2e.resource_claims.support.claim_agreement import TYPES, ledger_is_cluster
from tests.e2e.resource_claims.support.claim_cluster import ClaimCluster, opened
from tests.e2e.resource_claims.support.claim_manifests import (
    ON_H100,
    claim,
    deployment_with,
    exactly,
    pod_with,
    template,
)
from tests.e2e.resource_claims.support.claim_supply import H100_NODE
from tests.e2e.resource_claims.support.claim_team import ClaimTeam

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.timeout(300),
    pytest.mark.asyncio(loop_scope="session"),
]

LINE: Final = f"limits.{MEMORY}"
SMALL: Final = "7500Mi"
BOUND: Final = 10_240
CONSUMED: Final = 8_192
LARGE: Final = "12Gi"
LARGE_BOUND: Final = 15_360
LARGE_CONSUMED: Final = 12_288


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def yard(
    assets: Path, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[ClaimCluster]:
    """Run the cluster of all tests of this file."""
    folder = tmp_path_factory.mktemp("policies")
    async with opened(assets, folder, gpu_types=",".join(TYPES)) as running:
        yield running


@pytest_asyncio.fixture(loop_scope="session")
async def teams(yard: ClaimCluster) -> AsyncIterator[tuple[ClaimTeam, ClaimTeam]]:
    """Make two namespaces without quotas of their own."""
    await yard.run_service()
    made = tuple(ClaimTeam(f"team-{uuid.uuid4().hex[:8]}", yard) for _ in range(2))
    for team in made:
        await team.open()
    yield made[0], made[1]
    fall = yard.service.fall()
    assert not fall, fall


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
    teams: tuple[ClaimTeam, ClaimTeam],
) -> None:
    a, b = teams
    group = {"group": uuid.uuid4().hex[:8]}
    wide = await universe(a, 5 * BOUND, namespaces=[a.namespace, b.namespace])
    low = await universe(a, 2 * BOUND, objectSelector={"matchLabels": group})
    part = exactly(memory=SMALL)
    web = pod_with("web", templates=("part",), on=a.gate)
    await a.make(template("part", part), labelled(web, group))
    await b.make(labelled(claim("own", part), group), claim("other", part))
    await b.make(*(pod_with(name, claims=("own", "other"), on=a.gate) for name in ("x", "y")))
    await shared_usage_is(a, {wide: 3 * BOUND, low: 2 * BOUND})
    await b.refused(claim("more", exactly(memory="30Gi")), wide, str(3 * BOUND))
    one_more = deployment_with("set", 1, templates=("part",), on=a.gate)
    await a.refused(labelled(one_more, group), low, f"{2 * BOUND} are used")
    await a.make(one_more)
    await shared_usage_is(a, {wide: 4 * BOUND, low: 2 * BOUND})
    await relabel(b, "other", group["group"], low)
    await ledger_is_cluster(a, b)

    for team in teams:
        await team.open_gate(H100_NODE)
    await a.allocated(2)
    await b.allocated(2)
    await ledger_is_cluster(a, b)
    await shared_usage_is(a, {low: 2 * CONSUMED})
    await a.remove("Deployment", "set")
    await shared_usage_is(a, {wide: 3 * CONSUMED, low: 2 * CONSUMED})
    await relabel(b, "own", None, "LeavesQuota")
    # Now there is room, and the quota counts what the claim has, not its bound.
    await a.remove("Pod", "web")
    await relabel(b, "other", group["group"])
    await shared_usage_is(a, {wide: 2 * CONSUMED, low: 2 * CONSUMED})

    await b.remove("Pod", "x", "y")
    await shared_usage_is(a, {wide: 2 * BOUND, low: 2 * BOUND})
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
async def team(teams: tuple[ClaimTeam, ClaimTeam]) -> AsyncIterator[ClaimTeam]:
    """Return a namespace where pods wait, with too little room beside pod `first` with a claim.

    That pod was scheduled before there was a gate: kube-scheduler forgets, now and then, a pod
    whose gate is removed while its claim is generated.
    """
    here = teams[0]
    limits = {LINE: str(BOUND + BOUND // 2), "limits.nvidia.com/gpu": "10"}
    await here.limit(limits)
    await here.make(template("part", exactly(memory=SMALL)))
    await here.make(pod_with("first", templates=("part",), on=ON_H100))
    await here.allocated(1)
    await here.charge_is(memory=CONSUMED, cards=1)
    async with under(here, limits, onExceeded="pending"):
        yield here
        await here.clear()
        await here.charge_is(memory=0, cards=0)


async def test_pod_of_a_template_waits_for_room_and_is_counted_once(
    team: ClaimTeam, yard: ClaimCluster
) -> None:
    await waits(team, pod_with("second", templates=("part",), on=ON_H100))
    await waits(team, pod_with("third", templates=("part",), on=ON_H100))
    await gates_are(team, "second", "third")
    await ledger_is_cluster(team)

    yard.service.kill()
    await yard.run_service()
    await gates_are(team, "second", "third")
    await team.charge_is(memory=CONSUMED, cards=1)
    await ledger_is_cluster(team)

    yard.service.kill()
    await team.remove("Pod", "first")
    await yard.run_service()
    await gates_are(team, "third")
    await team.allocated(1)
    await team.charge_is(memory=CONSUMED, cards=1)
    await ledger_is_cluster(team)
    held = await team.holder("pods/second")
    assert held is not None
    assert len(held["devices"]) == 1, held
    assert [row["key"] for row in await team.reservations()] == ["pods/first", "pods/second"]


async def test_larger_template_of_a_waiting_pod_is_charged_with_its_claim(
    team: ClaimTeam, yard: ClaimCluster
) -> None:
    with yard.paused_controllers():
        await waits(team, pod_with("second", templates=("part",), on=ON_H100))
        await team.remove("ResourceClaimTemplate", "part")
        await team.make(template("part", exactly(memory=LARGE)))
        await team.remove("Pod", "first")
        await gates_are(team)
    [made] = await team.allocated(1)
    [request] = made["spec"]["devices"]["requests"]
    # The controller may not have read the new template yet when it goes on.
    is_large = request["exactly"]["capacity"]["requests"]["memory"] == LARGE
    await team.charge_is(memory=LARGE_CONSUMED if is_large else CONSUMED, cards=1)
    await ledger_is_cluster(team)


async def test_claim_of_a_waiting_pod_is_of_no_use_to_another_pod(team: ClaimTeam) -> None:
    await waits(team, pod_with("second", templates=("part",), on=ON_H100))
    made = await team.claims_are(2)
    [name] = [each["metadata"]["name"] for each in made if "second" in each["metadata"]["name"]]
    await team.refused(pod_with("thief", claims=(name,), on=ON_H100), "ClaimOfOtherPod")
    await team.charge_is(memory=CONSUMED, cards=1)
    assert await team.holder(CLAIM_KEY + name) is None
