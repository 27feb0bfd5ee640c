"""One suite for both implementations of the cluster port: the model and the real adapter."""

import contextlib

import pytest
from support.fakes.apiserver import (
    FakeApiServer,
    FakeCluster,
    client_on_loopback,
    http_api,
    pod_body,
    quota_body,
)

from ledger.kube.api.cluster_ports import Changed, Listed, WatchedCluster
from ledger.kube.cluster.kubernetes_cluster import KubernetesCluster


@pytest.fixture
def server() -> FakeApiServer:
    return FakeApiServer()


@pytest.fixture(params=["model", "http"])
async def cluster(request, server, tmp_path):
    if request.param == "model":
        yield FakeCluster(server)
        return
    async with client_on_loopback(http_api(server), tmp_path) as client:
        yield KubernetesCluster(client)


async def test_a_cluster_is_known_by_the_uid_of_kube_system(
    cluster: WatchedCluster, server: FakeApiServer
):
    assert await cluster.kube_system_uid() == server.uid


async def test_a_list_holds_the_pods_of_its_namespace_alone(
    cluster: WatchedCluster, server: FakeApiServer
):
    server.create("pods", "red", pod_body("mine"))
    server.create("pods", "blue", pod_body("other"))
    listed = await cluster.list_pods("red")
    assert [pod.metadata.name for pod in listed.objects] == ["mine"]
    assert listed.version == server.version


async def test_a_watch_begins_with_everything_at_one_version(
    cluster: WatchedCluster, server: FakeApiServer
):
    server.create("pods", "red", pod_body("p"))
    async with contextlib.aclosing(cluster.watch_pods()) as changes:
        first = await anext(changes)
    assert isinstance(first, Listed)
    assert first.version == server.version
    assert [pod.metadata.name for pod in first.objects] == ["p"]


async def test_watch_yields_creation_change_and_deletion(
    cluster: WatchedCluster, server: FakeApiServer
):
    async with contextlib.aclosing(cluster.watch_pods()) as changes:
        await anext(changes)
        created = server.create("pods", "red", pod_body("p"))
        server.update("pods", "red", "p", status={"phase": "Running"})
        server.delete("pods", "red", "p")
        seen = [await anext(changes) for _ in range(3)]
    assert all(isinstance(change, Changed) for change in seen)
    assert [change.deleted for change in seen] == [False, False, True]
    assert [change.object.status.phase for change in seen] == ["Pending", "Running", "Running"]
    assert {change.object.metadata.uid for change in seen} == {created["metadata"]["uid"]}
    assert [change.version for change in seen] == sorted({change.version for change in seen})
    assert seen[-1].version == server.version


async def test_quotas_are_watched_like_pods(cluster: WatchedCluster, server: FakeApiServer):
    server.create("resourcequotas", "red", quota_body("q", **{"limits.nvidia.com/gpu": "2"}))
    async with contextlib.aclosing(cluster.watch_quotas()) as changes:
        listed = await anext(changes)
        server.delete("resourcequotas", "red", "q")
        gone = await anext(changes)
    assert listed.objects[0].spec.hard == {"limits.nvidia.com/gpu": "2"}
    assert gone.deleted
