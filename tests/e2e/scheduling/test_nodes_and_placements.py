"""Nodes announce cards, pods come with cards that others gave them, and Bindings fail to come."""

import json
import uuid
from collections.abc import AsyncIterator
from typing import Any, Final

import pytest

from tests.e2e.harness.authorization import grant_all_in
from tests.e2e.harness.cluster import Cluster, Manifest
from tests.e2e.harness.controlplane import SERVICE, ControlPlane
from tests.e2e.harness.polling import eventually
from tests.e2e.harness.service import Service
from tests.e2e.objects.pods import pod
from tests.e2e.objects.team import SEEN_SECONDS, Team

pytestmark = pytest.mark.e2e

NODES: Final = "/api/v1/nodes"
REGISTER: Final = "hami.io/node-nvidia-register"
ALLOCATED: Final = "hami.io/vgpu-devices-allocated"
MEMORY: Final = 24_576
HAMI: Final = "system:serviceaccount:kube-system:hami-scheduler"
"""A user that may write the cards of a pod."""


def in_json(name: str) -> str:
    card = {"count": 10, "devmem": MEMORY, "devcore": 100, "type": "NVIDIA A10", "health": True}
    return json.dumps([{"id": f"GPU-{name}-{at}", "index": at} | card for at in range(2)])


def in_colons(name: str) -> str:
    return "".join(f"GPU-{name}-{at},10,{MEMORY},100,NVIDIA A10,0,true:" for at in range(2))


def node(name: str, text: str) -> Manifest:
    metadata = {"name": name, "annotations": {REGISTER: text}}
    return {"apiVersion": "v1", "kind": "Node", "metadata": metadata}


def placed(name: str, on: str, memory: int = 4_000) -> Manifest:
    """Return a pod as HAMi leaves it on a node."""
    manifest = pod(name, cards=1, memory=memory)
    manifest["spec"]["nodeName"] = on
    given = f"GPU-{on}-0,NVIDIA,{memory},10:;"
    manifest["metadata"]["annotations"] = {"hami.io/vgpu-node": on, ALLOCATED: given}
    return manifest


@pytest.fixture
async def name(cluster: Cluster) -> AsyncIterator[str]:
    """Return the name of a node that a test makes, and that is gone after it."""
    name = f"node-{uuid.uuid4().hex[:8]}"
    yield name
    await cluster.ask("DELETE", f"{NODES}/{name}")


@pytest.fixture
async def hami(team: Team, cluster: Cluster) -> Cluster:
    """Return the API server as HAMi's scheduler sees it."""
    await grant_all_in(cluster, team.namespace, HAMI)
    return cluster.as_user(HAMI)


async def totals(service: Service, control_plane: ControlPlane, uuid: str) -> dict[str, Any]:
    """Return an import's findings about a card: usage by the ledger, and by HAMi."""
    kubeconfig = f"--kubeconfig={control_plane.kubeconfig(SERVICE)}"
    _, output = await service.run("import", "hami", "--dry-run", kubeconfig)
    report = json.loads(output)
    assert report["pods"] == 0, "settlement has imported every pod already"
    (card,) = [candidate for candidate in report["cards"] if candidate["uuid"] == uuid]
    return dict(card)


async def cards(service: Service, name: str) -> list[dict[str, Any]]:
    rows = await service.answer("cards", "-o", "json")
    return [row for row in rows if row["node"] == name]


async def sees(service: Service, name: str, wanted: Any, what: str) -> list[dict[str, Any]]:
    return await eventually(lambda: cards(service, name), wanted, within=SEEN_SECONDS, what=what)


def used(amount: int) -> Any:
    return lambda rows: bool(rows) and sum(row["used_memory"] for row in rows) == amount


@pytest.mark.parametrize("write", [in_json, in_colons])
async def test_cards_that_a_node_announces_are_accounts(
    cluster: Cluster, service: Service, name: str, write: Any
) -> None:
    await cluster.must("POST", NODES, node(name, write(name)))
    announced = await sees(service, name, lambda seen: len(seen) == 2, f"two cards of {name}")
    assert [card["uuid"] for card in announced] == [f"GPU-{name}-0", f"GPU-{name}-1"]
    assert {(card["memory"], card["cores"], card["slots"]) for card in announced} == {
        (MEMORY, 100, 10)
    }


async def test_a_pod_that_others_placed_is_charged_and_outlives_its_node(
    team: Team,
    cluster: Cluster,
    hami: Cluster,
    service: Service,
    control_plane: ControlPlane,
    name: str,
) -> None:
    await cluster.must("POST", NODES, node(name, in_json(name)))
    await sees(service, name, lambda seen: len(seen) == 2, f"two cards of {name}")
    await hami.must("POST", f"{team.path}/pods", placed("hami", name))
    await sees(service, name, used(4_000), "the pod is charged on its card")
    same = await totals(service, control_plane, f"GPU-{name}-0")
    assert same["used_memory"] == same["hami_memory"] == 4_000
    await cluster.must("DELETE", f"{NODES}/{name}")
    left = await sees(service, name, lambda seen: len(seen) == 1, "the unused card is gone")
    assert left[0]["used_memory"] == 4_000
    await cluster.must("DELETE", f"{team.path}/pods/hami?gracePeriodSeconds=0")
    await sees(service, name, lambda seen: not seen, "nothing is left of the node")


async def test_a_pod_is_charged_when_its_node_announces_cards_later(
    team: Team, cluster: Cluster, hami: Cluster, service: Service, name: str
) -> None:
    await cluster.must("POST", NODES, node(name, "[{"))
    await hami.must("POST", f"{team.path}/pods", placed("early", name))
    change = {"metadata": {"annotations": {REGISTER: in_json(name)}}}
    assert (await cluster.patch(f"{NODES}/{name}", change)).status == 200
    await sees(service, name, used(4_000), "the pod is charged on its card")
