"""The real API server's pods are the same in both encodings of the watch, and in a list."""

import uuid
from collections.abc import AsyncIterator

import pytest

from ledger.kube.api import api_resources
from ledger.kube.api.cluster_errors import NotFound
from ledger.kube.api.objects import Pod, PodList
from ledger.kube.api.protobuf_envelope import PROTOBUF
from ledger.kube.client.api_client import ApiClient
from ledger.kube.watch import list_watch
from ledger.kube.watch.list_watch import CollectionSource, whole
from ledger.kube.watch.watch_encodings import WatchEncoding, json_events, protobuf_events
from tests.e2e.harness import watch_recorder
from tests.e2e.harness.cluster import Cluster
from tests.e2e.harness.controlplane import ADMIN, ControlPlane

pytestmark = pytest.mark.e2e


@pytest.fixture
async def client(control_plane: ControlPlane) -> AsyncIterator[ApiClient]:
    async with await ApiClient.connect(control_plane.kubeconfig(ADMIN)) as connected:
        yield connected


def versions(encoding: WatchEncoding[Pod], content: bytes) -> dict[str, tuple[str, Pod]]:
    """Return the events of a watch by the version of the pod."""
    events = [encoding.event(event) for event in encoding.splitter().feed(content)]
    pods = [(kind, encoding.object(pod)) for kind, pod in events if kind != "BOOKMARK"]
    return {pod.metadata.resource_version: (kind, pod) for kind, pod in pods}


async def test_pods_are_the_same_in_both_encodings(cluster: Cluster, client: ApiClient) -> None:
    namespace = f"encoded-{uuid.uuid4().hex[:8]}"
    manifest = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}
    await cluster.must("POST", api_resources.NAMESPACES.collection(), manifest)
    watched = await watch_recorder.recorded(cluster, client, namespace)
    in_json = versions(json_events(Pod), watched["watch.json"])
    in_protobuf = versions(protobuf_events(Pod, "Pod"), watched["watch.pb"])
    shared = in_json.keys() & in_protobuf.keys()
    assert len(shared) >= 16
    assert {key: in_protobuf[key] for key in shared} == {key: in_json[key] for key in shared}

    path = api_resources.PODS.collection(namespace)
    source = CollectionSource(path, Pod, page_type=PodList, keep=whole)
    listed = await list_watch.list_all(client, source)
    current = [pod for pod in listed.objects if pod.metadata.resource_version in in_protobuf]
    assert len(current) >= 4
    for pod in current:
        assert in_protobuf[pod.metadata.resource_version][1] == pod


async def test_error_in_protobuf_gives_the_servers_reason(client: ApiClient) -> None:
    path = api_resources.PODS.object("default", "missing")
    with pytest.raises(NotFound, match='pods "missing" not found'):
        await client.request("GET", path, accept=PROTOBUF)
