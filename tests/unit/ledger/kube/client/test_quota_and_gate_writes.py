"""Requests of quota and gate writes."""

import pytest
from support.fakes.canned_apiserver import failure

from ledger.kube.api.api_resources import POLICIES, UNIVERSE_QUOTAS
from ledger.kube.api.cluster_errors import Forbidden, VersionConflict
from ledger.kube.cluster.kubernetes_cluster import KubernetesCluster

QUOTA = "/api/v1/namespaces/red/resourcequotas/gpu/status"
MEMORY = "limits.nvidia.com/gpumem"


@pytest.fixture
def cluster(client) -> KubernetesCluster:
    return KubernetesCluster(client)


async def test_usage_is_merged_into_a_status_of_one_version(answers, cluster):
    answers.by_path[QUOTA] = {}
    await cluster.patch_quota_status("red", "gpu", {MEMORY: "5"}, 7)
    asked = answers.asked[-1]
    assert asked.method == "PATCH"
    assert asked.headers["Content-Type"] == "application/merge-patch+json"
    assert asked.query == {"fieldManager": "gpuledger"}
    assert asked.body == {
        "metadata": {"resourceVersion": "7"},
        "status": {"used": {MEMORY: "5"}},
    }


@pytest.mark.parametrize("key", ["pods", "requests.nvidia.com/gpu", "limits.cpu"])
async def test_what_kubernetes_counts_is_never_written(answers, cluster, key):
    with pytest.raises(ValueError, match=rf"status.used\['{key}'\] of quota red/gpu"):
        await cluster.patch_quota_status("red", "gpu", {MEMORY: "5", key: "1"}, 7)
    assert answers.asked == []


async def test_a_write_at_another_version_is_a_conflict(answers, cluster):
    answers.by_path[QUOTA] = failure(409, "VersionConflict", "the object has been modified")
    with pytest.raises(VersionConflict, match="modified"):
        await cluster.patch_quota_status("red", "gpu", {MEMORY: "5"}, 7)


@pytest.mark.parametrize("resource", [UNIVERSE_QUOTAS, POLICIES])
async def test_a_status_of_our_own_kinds_is_replaced_whole(answers, cluster, resource):
    path = f"/apis/gpuledger.io/v1alpha1/{resource.plural}/all/status"
    answers.by_path[path] = {}
    await cluster.replace_status(resource, "all", {"used": {MEMORY: "5"}})
    assert answers.asked[-1].headers["Content-Type"] == "application/json-patch+json"
    value = {"used": {MEMORY: "5"}}
    assert answers.asked[-1].body == [{"op": "add", "path": "/status", "value": value}]


async def test_a_quota_that_is_there_stays_as_it_is(answers, cluster):
    path = "/api/v1/namespaces/red/resourcequotas"
    answers.by_path[path] = {}
    assert await cluster.create_quota("red", "default", {MEMORY: "5"})
    assert answers.asked[-1].body["spec"] == {"hard": {MEMORY: "5"}}
    assert answers.asked[-1].body["metadata"]["labels"] == {"gpuledger.io/default-quota": "true"}
    answers.by_path[path] = failure(409, "AlreadyExists", name="default")
    assert not await cluster.create_quota("red", "default", {MEMORY: "5"})


@pytest.mark.parametrize(("code", "kind"), [(409, VersionConflict), (403, Forbidden)])
async def test_a_quota_that_could_not_be_made_is_not_taken_for_there(answers, cluster, code, kind):
    answers.by_path["/api/v1/namespaces/red/resourcequotas"] = failure(code, "VersionConflict")
    with pytest.raises(kind):
        await cluster.create_quota("red", "default", {MEMORY: "5"})


async def test_a_gate_is_named_and_not_counted(answers, cluster):
    answers.by_path["/api/v1/namespaces/red/pods/p"] = {}
    await cluster.remove_gate("red", "p", "gpuledger.io/quota", 7)
    asked = answers.asked[-1]
    assert asked.headers["Content-Type"] == "application/strategic-merge-patch+json"
    assert asked.body == {
        "metadata": {"resourceVersion": "7"},
        "spec": {"schedulingGates": [{"$patch": "delete", "name": "gpuledger.io/quota"}]},
    }
