"""Annotations by which a pod claims cards: the users that may write them, under any limits."""

import json
import uuid
from collections.abc import AsyncIterator
from typing import Any, Final

import pytest

from tests.e2e.harness.authorization import grant, grant_all_in
from tests.e2e.harness.cluster import Answer, Cluster, Manifest
from tests.e2e.harness.polling import eventually
from tests.e2e.harness.service import Service
from tests.e2e.objects.pods import pod
from tests.e2e.objects.policies import under
from tests.e2e.objects.team import SEEN_SECONDS, Team

pytestmark = pytest.mark.e2e

NODES: Final = "/api/v1/nodes"
ALLOCATED: Final = "hami.io/vgpu-devices-allocated"
MEMORY: Final = 24_576
LIMITS: Final = {"limits.nvidia.com/gpu": "8"}
PLUGIN: Final = "system:serviceaccount:kube-system:hami-device-plugin"
"""An identity of HAMi that may write the cards of a pod."""

MODES: Final = ("off", "warn", "enforce")
TENANT_RIGHTS: Final[list[Manifest]] = [
    {
        "apiGroups": [""],
        "resources": ["pods", "pods/status", "pods/binding", "bindings"],
        "verbs": ["get", "create", "patch", "update"],
    }
]


def plain(name: str, **metadata: Any) -> Manifest:
    """Return a pod that asks for no card."""
    manifest = pod(name, **metadata)
    del manifest["spec"]["containers"][0]["resources"]
    return manifest


def claim(node: str) -> Manifest:
    """Return metadata that claims a whole card of a node."""
    given = f"GPU-{node}-0,NVIDIA,{MEMORY},100:;"
    return {"annotations": {"hami.io/vgpu-node": node, ALLOCATED: given}}


def binding(name: str, node: str, **metadata: Any) -> Manifest:
    return {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": name, **metadata},
        "target": {"apiVersion": "v1", "kind": "Node", "name": node},
    }


@pytest.fixture
async def node(cluster: Cluster, service: Service) -> AsyncIterator[str]:
    """Make a node with one card, and return its name once the ledger has the card."""
    name = f"node-{uuid.uuid4().hex[:8]}"
    card = {"id": f"GPU-{name}-0", "index": 0, "count": 10, "devmem": MEMORY, "devcore": 100}
    announced = json.dumps([card | {"type": "NVIDIA A10", "health": True}])
    metadata = {"name": name, "annotations": {"hami.io/node-nvidia-register": announced}}
    await cluster.must("POST", NODES, {"apiVersion": "v1", "kind": "Node", "metadata": metadata})
    await used_of(service, name, 0)
    yield name
    await cluster.ask("DELETE", f"{NODES}/{name}")


@pytest.fixture
async def user(team: Team, cluster: Cluster) -> Cluster:
    """Return the API server as a user sees it who may write pods in every way."""
    name = f"user-{team.namespace}"
    await grant(cluster, name, TENANT_RIGHTS)
    return cluster.as_user(name)


async def used_of(service: Service, node: str, memory: int) -> None:
    """Wait until the ledger has given so much of the node's card, in MiB."""

    async def look() -> list[int]:
        cards = await service.answer("cards", "-o", "json")
        return [card["used_memory"] for card in cards if card["node"] == node]

    what = f"{memory} MiB of the card of {node} are given"
    await eventually(look, lambda seen: seen == [memory], within=SEEN_SECONDS, what=what)


def is_refused(answer: Answer, user: str) -> None:
    assert answer.status == 403, answer
    assert "ReservedAnnotation" in answer.message, answer.message
    assert user in answer.message, answer.message


@pytest.mark.parametrize("mode", MODES)
async def test_a_pod_that_asks_for_nothing_takes_no_card_by_an_annotation(
    team: Team, user: Cluster, service: Service, node: str, mode: str
) -> None:
    async with under(team, LIMITS, mode=mode):
        manifest = plain("claimer", **claim(node))
        manifest["spec"]["nodeName"] = node
        answer = await user.ask("POST", f"{team.path}/pods", manifest)
        is_refused(answer, f"user-{team.namespace}")
        await used_of(service, node, 0)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("subresource", ["", "/status"])
async def test_a_pod_that_runs_takes_no_card_by_an_update(
    team: Team, user: Cluster, service: Service, node: str, mode: str, subresource: str
) -> None:
    async with under(team, LIMITS, mode=mode):
        manifest = plain("runs", labels={"app": "a"})
        manifest["spec"]["nodeName"] = node
        await user.must("POST", f"{team.path}/pods", manifest)
        path = f"{team.path}/pods/runs{subresource}"
        is_refused(await user.patch(path, {"metadata": claim(node)}), f"user-{team.namespace}")
        label = {"metadata": {"labels": {"hami.io/vgpu-node": node}}}
        is_refused(await user.patch(path, label), f"user-{team.namespace}")
        await used_of(service, node, 0)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("path", ["pods/waits/binding", "bindings"])
async def test_a_binding_brings_no_card_with_it(
    team: Team, user: Cluster, service: Service, node: str, mode: str, path: str
) -> None:
    async with under(team, LIMITS, mode=mode):
        await user.must("POST", f"{team.path}/pods", plain("waits"))
        answer = await user.ask(
            "POST", f"{team.path}/{path}", binding("waits", node, **claim(node))
        )
        is_refused(answer, f"user-{team.namespace}")
        await used_of(service, node, 0)


async def test_what_hami_writes_is_believed_where_nothing_else_is_checked(
    team: Team, user: Cluster, cluster: Cluster, service: Service, node: str
) -> None:
    """A trusted identity may write a claim in every way, also with the mode off."""
    async with under(team, LIMITS, mode="off"):
        await user.must("POST", f"{team.path}/pods", plain("given"))
        await grant_all_in(cluster, team.namespace, PLUGIN)
        hami = cluster.as_user(PLUGIN)
        await hami.must(
            "POST", f"{team.path}/pods/given/binding", binding("given", node, **claim(node))
        )
        await used_of(service, node, MEMORY)
        phase = {"metadata": {"annotations": {"hami.io/bind-phase": "success"}}}
        assert (await hami.patch(f"{team.path}/pods/given/status", phase)).status == 200


async def test_ordinary_writes_do_not_wait_for_the_service(
    team: Team, user: Cluster, node: str
) -> None:
    """A kubelet and a scheduler go on while the service is down, also at a pod with a claim."""
    await user.must("POST", f"{team.path}/pods", plain("ordinary"))
    team.service.kill()
    status = {"status": {"message": "running"}, "metadata": {"annotations": {"own": "x"}}}
    assert (await user.patch(f"{team.path}/pods/ordinary/status", status)).status == 200
    bound = await user.ask("POST", f"{team.path}/bindings", binding("ordinary", node))
    assert bound.status == 201, bound
    claimed = await user.patch(f"{team.path}/pods/ordinary/status", {"metadata": claim(node)})
    assert claimed.status == 500, "a claim is refused while no replica can check it"
    await team.service.run_again()
