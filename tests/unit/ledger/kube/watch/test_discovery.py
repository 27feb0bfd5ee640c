"""Resources of an API server, by aggregated discovery and by single requests."""

import asyncio

import pytest
from aiohttp import web

from ledger.kube.api.api_resources import PODS, Resource
from ledger.kube.api.cluster_errors import ClusterUnavailable, Malformed
from ledger.kube.cluster.kubernetes_cluster import KubernetesCluster
from ledger.kube.watch import discovery
from ledger.kube.watch.discovery import discover

DEPLOYMENTS = Resource("apps", "v1", "deployments", "Deployment")
NODES = Resource("", "v1", "nodes", "Node", namespaced=False)
JOBS = Resource("kubeflow.org", "v2beta1", "mpijobs", "MPIJob")
OLD_JOBS = Resource("kubeflow.org", "v1", "mpijobs", "MPIJob")
ALL = ["create", "get", "list", "watch"]


def entry(resource: Resource, verbs: list[str] = ALL) -> dict:
    return {
        "resource": resource.plural,
        "responseKind": {"group": "", "version": "", "kind": resource.kind},
        "scope": "Namespaced" if resource.namespaced else "Cluster",
        "verbs": verbs,
    }


def aggregated(group: str, *versions: tuple[str, list[dict]], freshness: str = "Current") -> dict:
    return {
        "metadata": {"name": group} if group else {},
        "versions": [
            {"version": version, "resources": entries, "freshness": freshness}
            for version, entries in versions
        ],
    }


def answer_aggregated(answers, *groups: dict) -> None:
    core = aggregated("", ("v1", [entry(PODS), entry(NODES)]))
    for path, items in {"/api": [core], "/apis": list(groups)}.items():
        answers.by_path[path] = {"kind": "APIGroupDiscoveryList", "items": items}


def plain(*resources: Resource, verbs: list[str] = ALL) -> dict:
    entries = [
        {
            "name": resource.plural,
            "kind": resource.kind,
            "namespaced": resource.namespaced,
            "verbs": verbs,
        }
        for resource in resources
    ]
    return {"kind": "APIResourceList", "resources": entries}


def answer_plainly(answers) -> None:
    old = {"groupVersion": "kubeflow.org/v1", "version": "v1"}
    new = {"groupVersion": "kubeflow.org/v2beta1", "version": "v2beta1"}
    apps = {"groupVersion": "apps/v1", "version": "v1"}
    groups = [
        {"name": "apps", "versions": [apps], "preferredVersion": apps},
        {"name": "kubeflow.org", "versions": [old, new], "preferredVersion": new},
    ]
    answers.by_path |= {
        "/apis": {"kind": "APIGroupList", "groups": groups},
        "/api/v1": plain(PODS, NODES, Resource("", "v1", "pods/log", "Pod")),
        "/apis/apps/v1": plain(DEPLOYMENTS),
        "/apis/kubeflow.org/v1": plain(OLD_JOBS),
        "/apis/kubeflow.org/v2beta1": plain(JOBS),
    }


async def test_aggregated_discovery_takes_two_requests(answers, client):
    answer_aggregated(answers, aggregated("apps", ("v1", [entry(DEPLOYMENTS)])))
    served = await KubernetesCluster(client).served()
    assert served == (PODS, NODES, DEPLOYMENTS)
    assert [request.path for request in answers.asked] == ["/apis", "/api"]
    assert "as=APIGroupDiscoveryList" in answers.asked[0].headers["Accept"]


async def test_each_resource_is_served_once_in_the_preferred_version(answers, client):
    both = aggregated("kubeflow.org", ("v2beta1", [entry(JOBS)]), ("v1", [entry(OLD_JOBS)]))
    answer_aggregated(answers, both)
    discovered = await discover(client)
    assert discovered.preferred() == (PODS, NODES, JOBS)
    assert discovered.versions("mpijobs.kubeflow.org") == ("v2beta1", "v1")


async def test_what_cannot_be_listed_and_watched_is_left_out(answers, client):
    reviews = Resource("authn.example", "v1", "reviews", "Review")
    group = aggregated("authn.example", ("v1", [entry(reviews, ["create"])]))
    answer_aggregated(answers, group)
    assert (await discover(client)).every == (PODS, NODES)


async def test_an_older_server_is_asked_group_by_group(answers, client):
    answer_plainly(answers)
    discovered = await discover(client)
    assert discovered.preferred() == (PODS, NODES, DEPLOYMENTS, JOBS)
    assert discovered.versions("mpijobs.kubeflow.org") == ("v2beta1", "v1")
    assert discovered.unclear == frozenset()


async def test_a_group_whose_server_is_down_hides_no_other(answers, client):
    answer_plainly(answers)
    answers.by_path["/apis/kubeflow.org/v1"] = (503, {"message": "no endpoints"})
    discovered = await discover(client)
    assert JOBS in discovered.every
    assert discovered.unclear == {"kubeflow.org"}


async def test_a_group_that_is_stale_is_unclear(answers, client):
    answer_aggregated(answers, aggregated("metrics.example", ("v1", []), freshness="Stale"))
    assert (await discover(client)).unclear == {"metrics.example"}


async def test_groups_without_end_are_refused(answers, client, monkeypatch):
    monkeypatch.setattr(discovery, "GROUP_VERSIONS_MAX", 3)
    answer_plainly(answers)
    with pytest.raises(Malformed, match="serves 4 groups and versions; at most 3"):
        await discover(client)


async def test_a_discovery_as_a_whole_has_a_deadline(answers, client, monkeypatch):
    async def silence(_: web.Request) -> web.StreamResponse:
        await asyncio.Event().wait()
        raise AssertionError

    answer_plainly(answers)
    answers.by_path["/apis/apps/v1"] = silence
    monkeypatch.setattr(discovery, "DISCOVERY_SECONDS", 0.3)
    with pytest.raises(ClusterUnavailable, match=r"http://127.*discovery took longer than 0.3 s"):
        await discover(client)


async def test_a_document_that_makes_no_sense_is_named(answers, client):
    answers.by_path["/apis"] = ["surprise"]
    with pytest.raises(Malformed, match="/apis: no discovery document"):
        await discover(client)
