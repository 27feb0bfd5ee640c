"""Cards that a node announces and a ResourceSlice has: kube-scheduler allocates them."""

import ssl
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest
import pytest_asyncio

from extender.settlement.allocated_devices import card_overlap
from tests.e2e.harness.agreement import CLAIM_KEY
from tests.e2e.harness.cluster import Manifest
from tests.e2e.harness.polling import eventually
from tests.e2e.objects.pods import CARDS, MEMORY
from tests.e2e.objects.team import SETTLED_SECONDS
from tests.e2e.resource_claims.support.claim_cluster import ClaimCluster, opened
from tests.e2e.resource_claims.support.claim_manifests import claim, exactly, pod_with, template
from tests.e2e.resource_claims.support.claim_supply import (
    A100_NODE,
    API,
    H100_NODE,
    SHARED_DRIVER,
    SMALL,
    SMALL_BOUND,
    SMALL_CONSUMED,
    WHOLE,
    WHOLE_DRIVER,
    WHOLE_MIB,
    slice_of,
    whole_card,
    withdrawn,
)
from tests.e2e.resource_claims.support.claim_team import ClaimTeam
from tests.e2e.scheduling.support.extender_requests import ExtenderClient
from tests.e2e.scheduling.support.nodes import Shape, node

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.long,
    pytest.mark.timeout(300),
    pytest.mark.asyncio(loop_scope="session"),
]

SHARED_CARDS = [f"GPU-{H100_NODE}-{index}" for index in range(2)]
THIRD_CARD = f"GPU-{H100_NODE}-2"
ON_NODE = {"kubernetes.io/hostname": H100_NODE}
OVERLAPPING = "gpuledger_cards_overlapping"


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def yard(assets, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[ClaimCluster]:
    """Run a cluster whose service is an extender; a node announces three cards, two of a slice."""
    folder = tmp_path_factory.mktemp("slices")
    async with opened(assets, folder, gpu_types="h100,a100", extender="true") as running:
        announced = node(H100_NODE, Shape(cards=3, memory=81_920, model="NVIDIA H100"))
        await running.cluster.patch(
            f"/api/v1/nodes/{H100_NODE}",
            {"metadata": {"annotations": announced["metadata"]["annotations"]}},
        )
        yield running


async def filtered(team: ClaimTeam, pod: Manifest) -> dict[str, Any]:
    """Return the extender's answer to filter about the node."""
    client = ExtenderClient(team, team.service)  # type: ignore[arg-type]  # it sends requests only
    return await client._ask("filter", {"Pod": pod, "NodeNames": [H100_NODE]})


async def fit(team: ClaimTeam, pod: Manifest) -> dict[str, Any]:
    """Return the answer of the service about a manifest."""
    tls = ssl.create_default_context(cafile=str(team.service.authority))
    url = f"https://{team.service.address}/v1/fit?namespace={team.namespace}"
    async with (
        aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=30)) as session,
        session.post(url, json=pod, ssl=tls) as answer,
    ):
        content: dict[str, Any] = await answer.json()
        assert answer.status == 200, content
        return content


async def on_cards(team: ClaimTeam) -> dict[str, dict[str, int]]:
    """Return the MiB that each holder has of each card of the node."""
    rows = await team.service.get("/v1/cards", node=H100_NODE, pods="true")
    return {row["uuid"]: {pod["key"]: pod["memory"] for pod in row["pods"]} for row in rows}


async def offers(team: ClaimTeam) -> dict[str, tuple[str, str]]:
    """Return the mechanism and the driver of each card of the node."""
    rows = await team.service.get("/v1/cards", node=H100_NODE)
    return {row["uuid"]: (row["offered_by"], row["driver"]) for row in rows}


async def cards_are(team: ClaimTeam, *held: dict[str, int]) -> None:
    """Wait until the shared cards have these holders, in any order."""

    async def look() -> list[dict[str, int]]:
        cards = await on_cards(team)
        return sorted((cards.get(uuid, {}) for uuid in SHARED_CARDS), key=str)

    await eventually(
        look,
        lambda seen: seen == sorted(held, key=str),
        within=SETTLED_SECONDS,
        what=f"the cards have {held}",
    )


def whole_cards(count: int) -> Manifest:
    """Return a pod that asks for cards without a claim."""
    pod = pod_with("old")
    limits = {CARDS: str(count), MEMORY: "1000"}
    pod["spec"] = {"containers": [{"name": "main", "image": "cuda:12"}]}
    pod["spec"]["containers"][0]["resources"] = {"limits": limits}
    return pod


async def test_cards_of_slices_belong_to_the_allocator(yard: ClaimCluster, team: ClaimTeam) -> None:
    await team.open(memory=100_000, cards=10, cores=1000)
    await eventually(
        lambda: on_cards(team),
        lambda cards: len(cards) == 3,
        within=SETTLED_SECONDS,
        what="the node is registered",
    )
    # The extender gives the third card only.
    meta = {"metadata": {"name": "old", "namespace": team.namespace, "uid": "u"}}
    assert (await filtered(team, whole_cards(1) | meta))["NodeNames"] == [H100_NODE]
    refused = (await filtered(team, whole_cards(2) | meta))["FailedAndUnresolvableNodes"]
    assert str(refused[H100_NODE]).startswith("2/3 CardOfferedByDRA")
    report = await fit(team, whole_cards(2) | meta)
    assert "2/3 CardOfferedByDRA" in report["pods"][0]["nodes"][0]["reason"]
    assert report["offered_by_dra"] == 2
    assert await offers(team) == dict.fromkeys(SHARED_CARDS, ("dra", SHARED_DRIVER)) | {
        THIRD_CARD: ("device-plugin", "")
    }
    report = await fit(team, pod_with("web", claims=("own",)))
    assert (report["fits"], report["pods"][0]["claims"]) == (False, ["c0"])
    # kube-scheduler's allocations are on the cards of the ledger: of a pod, and of a claim.
    await team.make(template("part", exactly(memory=SMALL, cores="20")))
    await team.make(claim("own", exactly(memory="16Gi", cores="10")))
    await team.make(pod_with("web", templates=("part",), on=ON_NODE))
    await team.make(pod_with("user", claims=("own",), on=ON_NODE))
    await team.allocated(2)
    web, own = {"pods/web": SMALL_CONSUMED}, {f"{CLAIM_KEY}own": 16_384}
    seen = await eventually(
        lambda: on_cards(team),
        lambda cards: sum(len(cards[uuid]) for uuid in SHARED_CARDS) == 2,
        within=SETTLED_SECONDS,
        what="both allocations are on cards",
    )
    held = {key: memory for uuid in SHARED_CARDS for key, memory in seen[uuid].items()}
    assert held == web | own
    assert await yard.service.metric(OVERLAPPING) == 0
    assert await yard.service.metric('gpuledger_placement_drift_total{kind="cards"}') == 0
    await team.remove("Pod", "web", "user")
    await team.remove("ResourceClaim", "own")
    await cards_are(team, {}, {})


async def test_withdrawn_slices_change_no_charge(yard: ClaimCluster, team: ClaimTeam) -> None:
    await team.open(memory=1_000_000)
    await team.make(claim("waits", exactly(memory=SMALL)), claim("whole", exactly(WHOLE)))
    await team.make(pod_with("user", claims=("whole",), on=ON_NODE))
    await team.allocated(1)
    charge = SMALL_BOUND + WHOLE_MIB
    await team.charge_is(memory=charge)
    before = await team.holder(CLAIM_KEY + "whole")
    pools = (A100_NODE, SHARED_DRIVER), (H100_NODE, WHOLE_DRIVER)
    async with withdrawn(team.cluster, *pools):
        yard.service.kill()
        await yard.run_service()
        await team.make(claim("after", exactly(memory=SMALL)))
        await team.charge_is(memory=charge + SMALL_CONSUMED)
        assert await team.holder(CLAIM_KEY + "whole") == before


async def test_slice_with_the_card_of_a_placed_pod_is_drift(
    yard: ClaimCluster, team: ClaimTeam
) -> None:
    await team.open(memory=100_000, cards=10, cores=1000)
    waiting = whole_cards(1)
    waiting["spec"]["schedulerName"] = "nobody"
    [stored] = await team.make(waiting)
    client = ExtenderClient(team, team.service)  # type: ignore[arg-type]  # it sends requests only
    assert await client.bind("old", H100_NODE, stored) == ""
    late = whole_card("late", THIRD_CARD)
    await team.cluster.must(
        "POST",
        f"{API}/resourceslices",
        slice_of(H100_NODE, WHOLE_DRIVER, [late], generation=2),
    )
    await metric_is(yard, OVERLAPPING, 1)
    _, warning = await yard.service.check("surroundings")
    assert (await offers(team))[THIRD_CARD] == ("dra", WHOLE_DRIVER)
    assert f"card {THIRD_CARD} of node {H100_NODE} is in a ResourceSlice" in warning
    assert f"{team.namespace}/old" in warning
    await team.remove("Pod", "old")
    await metric_is(yard, OVERLAPPING, 0)
    assert await yard.service.metric('gpuledger_placement_drift_total{kind="offered"}') == 1


async def metric_is(yard: ClaimCluster, name: str, value: float) -> None:
    """Wait until a metric of the service has this value."""
    await eventually(
        lambda: yard.service.metric(name),
        lambda seen: seen == value,
        within=3 * card_overlap.LOOK_SECONDS,
        what=f"{name} is {value:g}",
    )
