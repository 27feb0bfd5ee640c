"""The ledger allowed an object that was never stored: settlement has to prove its absence."""

import asyncio
import itertools

import pytest

from tests.e2e.conftest import _connected
from tests.e2e.harness.cluster import Cluster, Manifest
from tests.e2e.harness.controlplane import ControlPlane
from tests.e2e.harness.polling import eventually
from tests.e2e.harness.second_webhook import DENY, REFUSAL, WAIT
from tests.e2e.harness.service import SETTLE_SECONDS
from tests.e2e.objects.pods import CARDS, pod
from tests.e2e.objects.team import PLENTY, SEEN_SECONDS, Team

pytestmark = pytest.mark.e2e

BURST_PODS = 200
STORM_PODS = 1_000
STORM_AT_ONCE = 16
STORM_CARDS = 100
HOLDS_OF_ONE_OWNER_MAX = 64
"""The documented default of the setting `owner_holds_max`."""

GONE_SECONDS = 1.0
"""How long an impatient client waits for its answer while etcd is paused."""


async def test_a_pod_refused_by_a_later_webhook_gives_its_hold_back(team: Team) -> None:
    await team.limit(PLENTY)
    answer = await team.create(pod("unwanted", labels=DENY))
    assert answer.status == 403
    assert REFUSAL in answer.message
    await team.holds_are(1)
    await team.agrees(cards=0)
    assert await _ends(team, "pods/unwanted") == ["absent"]


async def test_a_pod_refused_by_the_native_quota_gives_its_hold_back(team: Team) -> None:
    await team.limit(PLENTY)
    await team.create_quota({"pods": "1"}, "native")
    await _native_status(team, "native")
    await team.created(pod("first"))
    answer = await team.create(pod("second"))
    assert answer.status == 403
    assert "exceeded quota: native" in answer.message
    await team.agrees(cards=1)
    assert await _ends(team, "pods/second") == ["absent"]


async def test_a_controller_whose_pods_are_refused_does_not_fill_the_namespace(
    team: Team, tenant: Cluster
) -> None:
    await team.limit({f"limits.{CARDS}": str(STORM_CARDS)})
    owner = await _replica_set(team)
    turn = asyncio.Semaphore(STORM_AT_ONCE)
    in_full_swing = asyncio.Barrier(2)
    answered = itertools.count(1)

    async def create() -> int:
        async with turn:
            answer = await team.create(
                pod("storm", generate=True, labels=DENY, ownerReferences=[owner])
            )
        if next(answered) == STORM_CARDS * 3:
            await in_full_swing.wait()
        return answer.status

    storm = asyncio.gather(*(create() for _ in range(STORM_PODS)))
    await in_full_swing.wait()
    neighbour = await tenant.ask("POST", f"{team.path}/pods", pod("neighbour"))
    assert neighbour.status == 201, neighbour
    assert len(await team.holds()) <= HOLDS_OF_ONE_OWNER_MAX + 1
    assert set(await storm) == {403}
    await team.agrees(cards=1)


async def test_burst_of_one_user_beyond_the_bound_is_admitted(
    team: Team, control_plane: ControlPlane
) -> None:
    await team.limit({f"limits.{CARDS}": str(BURST_PODS)})
    async with _connected(control_plane, connections=BURST_PODS) as user:
        path, numbers = f"{team.path}/pods", range(BURST_PODS)
        burst = (user.ask("POST", path, pod(f"burst-{number}")) for number in numbers)
        refused = [answer for answer in await asyncio.gather(*burst) if answer.status != 201]
    assert not refused, (len(refused), refused[0])
    await team.agrees(cards=BURST_PODS)


async def test_a_client_that_goes_away_in_mid_request_leaves_no_hold(team: Team) -> None:
    await team.limit(PLENTY)
    team.later.shut_gate()
    client = asyncio.create_task(team.create(pod("abandoned", labels=WAIT)))
    try:
        await team.later.a_request_waits()
        await team.holds_are(1)
        client.cancel()
        await asyncio.gather(client, return_exceptions=True)
    finally:
        team.later.open_gate()
    await team.agrees()


@pytest.mark.parametrize("patience", [GONE_SECONDS, 60.0], ids=["gone", "patient"])
async def test_etcd_that_is_paused_after_admission_proves_nothing(
    team: Team, control_plane: ControlPlane, patience: float
) -> None:
    await team.limit(PLENTY)
    team.later.shut_gate()
    client = asyncio.create_task(team.create(pod("stuck", labels=WAIT), within=patience + 9))
    try:
        await team.later.a_request_waits()
        await team.holds_are(1)
        control_plane.pause_etcd()
        team.later.open_gate()
        if patience == GONE_SECONDS:
            await asyncio.wait([client], timeout=GONE_SECONDS)
            client.cancel()
        await asyncio.sleep(2 * SETTLE_SECONDS)  # the bound is over, yet nothing can be read
        assert len(await team.holds()) == 1, "a read that fails must not release a hold"
    finally:
        control_plane.resume_etcd()
        team.later.open_gate()
    (answer,) = await asyncio.gather(client, return_exceptions=True)
    await team.agrees()
    if not isinstance(answer, BaseException) and answer.status == 201:
        await team.agrees(cards=1)


async def _ends(team: Team, key: str) -> list[str]:
    return [
        event["cause"]
        for event in await team.service.events(team.namespace)
        if event["type"] == "Released" and event["key"] == key
    ]


async def _native_status(team: Team, quota: str) -> None:
    """Wait for the controller manager: without a status a native quota admits everything."""
    path = f"{team.path}/resourcequotas/{quota}"

    async def look() -> Manifest:
        status: Manifest = (await team.cluster.must("GET", path)).get("status", {})
        return status

    await eventually(
        look, lambda status: "used" in status, within=SEEN_SECONDS, what=f"{quota} has a status"
    )


async def _replica_set(team: Team) -> Manifest:
    """Make a ReplicaSet without replicas, and return the owner reference for its pods."""
    labels = {"app": "storm"}
    template = pod("template", labels=labels)
    manifest = {
        "apiVersion": "apps/v1",
        "kind": "ReplicaSet",
        "metadata": {"name": "storm"},
        "spec": {
            "replicas": 0,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": template["spec"]},
        },
    }
    path = f"/apis/apps/v1/namespaces/{team.namespace}/replicasets"
    stored = await team.cluster.must("POST", path, manifest)
    uid = stored["metadata"]["uid"]
    return {
        "apiVersion": "apps/v1",
        "kind": "ReplicaSet",
        "name": "storm",
        "uid": uid,
        "controller": True,
    }
