"""Requests of bindings, evictions and events of pods, and the meaning of their answers."""

import pytest
from support.fakes.canned_apiserver import failure

from ledger.kube.api.cluster_errors import (
    BudgetExhausted,
    ClusterUnavailable,
    Forbidden,
    Malformed,
    NotFound,
    NotServed,
    Rejected,
    VersionConflict,
)
from ledger.kube.api.cluster_ports import Listed, PodBinding, PodEvent
from ledger.kube.client.pod_events import NOTE_BYTES_MAX, agent_of
from ledger.kube.cluster.kubernetes_cluster import KubernetesCluster

POD = "/api/v1/namespaces/red/pods/p"
BINDING = f"{POD}/binding"
EVICTION = f"{POD}/eviction"
NODE = "/api/v1/nodes/n1"
EVENTS = "/apis/events.k8s.io/v1/namespaces/red/events"
BOUND = PodBinding(
    namespace="red",
    name="p",
    uid="u-1",
    node="n1",
    annotations={"a": "1"},
    labels={"l": "2"},
    version="7",
)
TOLD = PodEvent(
    namespace="red", name="p", uid="u-1", reason="Preempted", note="hm", action="Preempting"
)


@pytest.fixture
def cluster(client) -> KubernetesCluster:
    return KubernetesCluster(client)


async def test_a_binding_carries_all_that_it_was_decided_on(answers, cluster):
    answers.by_path[BINDING] = (201, {})
    await cluster.bind(BOUND)
    asked = answers.asked[-1]
    assert asked.method == "POST"
    assert asked.body == {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {
            "name": "p",
            "namespace": "red",
            "uid": "u-1",
            "resourceVersion": "7",
            "annotations": {"a": "1"},
            "labels": {"l": "2"},
        },
        "target": {"apiVersion": "v1", "kind": "Node", "name": "n1"},
    }


async def test_a_binding_of_any_version_names_none(answers, cluster):
    answers.by_path[BINDING] = (201, {})
    await cluster.bind(PodBinding(namespace="red", name="p", uid="u-1", node="n1"))
    assert "resourceVersion" not in answers.asked[-1].body["metadata"]


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        (failure(409, "VersionConflict", name="p"), VersionConflict),
        (failure(404, "NotFound", name="p"), NotFound),
        (failure(403, "Forbidden"), Forbidden),
        (failure(422, "Invalid"), Rejected),
        (failure(500, "InternalError"), ClusterUnavailable),
        (failure(504, "Timeout"), ClusterUnavailable),
    ],
)
async def test_a_refused_binding_differs_from_an_unclear_one(answers, cluster, answer, kind):
    answers.by_path[BINDING] = answer
    with pytest.raises(kind) as raised:
        await cluster.bind(BOUND)
    assert type(raised.value) is kind


async def test_an_eviction_is_of_one_uid(answers, cluster):
    answers.by_path[EVICTION] = (201, {})
    await cluster.evict("red", "p", "u-1")
    assert answers.asked[-1].body == {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": "p", "namespace": "red"},
        "deleteOptions": {"preconditions": {"uid": "u-1"}},
    }


async def test_eviction_refused_by_a_budget_is_not_an_overload(answers, cluster):
    status, body = failure(429, "TooManyRequests", "Cannot evict pod")
    cause = {"reason": "DisruptionBudget", "message": "The disruption budget b needs 2"}
    answers.by_path[EVICTION] = (status, body | {"details": {"causes": [cause]}})
    with pytest.raises(BudgetExhausted, match="Cannot evict pod The disruption budget b needs 2"):
        await cluster.evict("red", "p", "u-1")
    answers.by_path[EVICTION] = failure(429, "TooManyRequests")
    with pytest.raises(ClusterUnavailable):
        await cluster.evict("red", "p", "u-1")


async def test_annotations_of_a_node_are_merged_at_a_version(answers, cluster):
    answers.by_path[NODE] = {}
    await cluster.patch_node_annotations("n1", {"lock": "x", "old": None}, "9")
    asked = answers.asked[-1]
    assert (asked.method, asked.headers["Content-Type"]) == (
        "PATCH",
        "application/merge-patch+json",
    )
    metadata = {"annotations": {"lock": "x", "old": None}, "resourceVersion": "9"}
    assert asked.body == {"metadata": metadata}
    await cluster.patch_node_annotations("n1", {"lock": None})
    assert answers.asked[-1].body == {"metadata": {"annotations": {"lock": None}}}


async def test_annotations_of_a_pod_are_merged_at_a_version(answers, cluster):
    answers.by_path[POD] = {}
    await cluster.patch_pod_annotations("red", "p", {"given": "x"}, "9")
    asked = answers.asked[-1]
    assert (asked.method, asked.headers["Content-Type"]) == (
        "PATCH",
        "application/merge-patch+json",
    )
    assert asked.body == {"metadata": {"annotations": {"given": "x"}, "resourceVersion": "9"}}


async def test_an_event_is_about_the_pod(answers, cluster):
    answers.by_path[EVENTS] = (201, {})
    await cluster.create_event(TOLD)
    body = answers.asked[-1].body
    assert body["regarding"] == {
        "apiVersion": "v1",
        "kind": "Pod",
        "namespace": "red",
        "name": "p",
        "uid": "u-1",
    }
    assert (body["type"], body["reason"], body["note"]) == ("Normal", "Preempted", "hm")
    assert body["eventTime"].endswith("Z")


async def test_an_agent_reports_events_as_the_agent_of_its_node(answers, cluster):
    answers.by_path[EVENTS] = (201, {})
    await cluster.create_event(TOLD)
    told = answers.asked[-1].body
    assert told["reportingController"] == told["reportingInstance"] == "gpuledger.io/gpuledger"
    agents = KubernetesCluster(cluster._client, reporter=agent_of("n" * 200))
    await agents.create_event(TOLD)
    told = answers.asked[-1].body
    assert told["reportingController"] == "gpuledger.io/agent"
    assert told["reportingInstance"] == "n" * 128
    assert told["metadata"]["labels"] == {"gpuledger.io/reporter": "agent"}


async def test_a_long_note_is_cut_between_characters(answers, cluster):
    answers.by_path[EVENTS] = (201, {})
    told = PodEvent(
        namespace="red",
        name="p",
        uid="u-1",
        reason="PreemptionStarted",
        note="ä" * NOTE_BYTES_MAX,
        action="Filtering",
        warning=True,
    )
    await cluster.create_event(told)
    body = answers.asked[-1].body
    assert body["type"] == "Warning"
    assert body["note"].endswith("ä…")
    assert NOTE_BYTES_MAX - 2 <= len(body["note"].encode()) <= NOTE_BYTES_MAX


async def test_a_pod_is_read_with_how_far_its_containers_are(answers, cluster):
    answers.by_path[POD] = {
        "metadata": {"name": "p", "uid": "u-1", "resourceVersion": "7"},
        "spec": {"nodeName": "n1", "priority": 5, "preemptionPolicy": "Never"},
        "status": {
            "phase": "Running",
            "containerStatuses": [
                {"name": "new", "state": {"waiting": {"reason": "ContainerCreating"}}},
                {"name": "on", "started": True, "state": {"running": {"startedAt": "x"}}},
            ],
            "initContainerStatuses": [
                {"name": "good", "state": {"terminated": {"exitCode": 0}}},
                {"name": "bad", "state": {"terminated": {"exitCode": 3}}},
            ],
        },
    }
    pod = await cluster.get_pod("red", "p")
    assert answers.asked[-1].query == {}, "a read without a resourceVersion is linearizable"
    assert (pod.spec.node_name, pod.spec.priority, pod.spec.preemption_policy) == ("n1", 5, "Never")
    assert [status.has_begun() for status in pod.status.container_statuses] == [False, True]
    assert [status.has_succeeded() for status in pod.status.init_container_statuses] == [
        True,
        False,
    ]
    assert all(status.has_begun() for status in pod.status.init_container_statuses)


async def test_pod_is_none_when_absent_and_an_error_when_the_api_is_absent(answers, cluster):
    answers.by_path[POD] = failure(404, "NotFound", name="p")
    assert await cluster.get_pod("red", "p") is None
    answers.by_path[POD] = failure(404, "NotFound")
    with pytest.raises(NotServed):
        await cluster.get_pod("red", "p")
    answers.by_path[POD] = {"metadata": 5}
    with pytest.raises(Malformed, match="does not decode"):
        await cluster.get_pod("red", "p")


async def test_nodes_are_listed_with_what_they_offer(answers, cluster):
    node = {
        "metadata": {"name": "n1", "annotations": {"k": "v"}, "resourceVersion": "4"},
        "status": {
            "allocatable": {"nvidia.com/gpu": "10"},
            "conditions": [{"type": "DiskPressure", "status": "True"}],
            "images": [{"names": ["x"]}],
        },
    }
    answers.by_path["/api/v1/nodes"] = {"metadata": {"resourceVersion": "9"}, "items": [node]}
    answers.by_path[NODE] = node
    listed = await cluster.list_nodes()
    assert isinstance(listed, Listed)
    assert listed.version == 9
    [seen] = listed.objects
    assert await cluster.get_node("n1") == seen
    assert seen.status.allocatable == {"nvidia.com/gpu": "10"}
    assert not seen.is_ready()


@pytest.mark.parametrize(
    ("status", "ready"), [("True", True), ("False", False), ("Unknown", False)]
)
async def test_node_is_ready_when_its_ready_condition_is_true(answers, cluster, status, ready):
    conditions = [{"type": "Ready", "status": status}]
    answers.by_path[NODE] = {"metadata": {"name": "n1"}, "status": {"conditions": conditions}}
    node = await cluster.get_node("n1")
    assert node.is_ready() is ready
