"""Which pods a PodDisruptionBudget is about, and what is asked before pods are evicted."""

from typing import Any

import msgspec
import pytest

from ledger.kube.api.disruption_budgets import Budget
from ledger.kube.api.objects import ObjectMeta, Pod
from ledger.kube.cluster.kubernetes_cluster import KubernetesCluster

BUDGETS = "/apis/policy/v1/namespaces/red/poddisruptionbudgets"
PODS = "/api/v1/pods"


def _covers(selector: Any, labels: dict[str, str] | None, **status: Any) -> bool:
    raw = {"spec": {"selector": selector}, "status": status}
    budget = msgspec.convert(raw, Budget)
    return budget.covers(Pod(ObjectMeta(name="p", labels=labels)))


def _expression(operator: str, *values: str) -> dict[str, Any]:
    requirement: dict[str, Any] = {"key": "tier", "operator": operator}
    return {"matchExpressions": [requirement | {"values": list(values)} if values else requirement]}


def test_budget_selects_no_pod_without_selector_and_all_when_it_is_empty() -> None:
    assert not _covers(None, {"app": "a"})
    assert _covers({}, {"app": "a"})
    assert _covers({}, None)


def test_a_pod_has_to_have_all_labels() -> None:
    selector = {"matchLabels": {"app": "a", "tier": "b"}}
    assert _covers(selector, {"app": "a", "tier": "b", "more": "c"})
    assert not _covers(selector, {"app": "a"})
    assert not _covers(selector, {"app": "a", "tier": "x"})


@pytest.mark.parametrize(
    ("selector", "among", "others", "without"),
    [
        (_expression("In", "a", "b"), True, False, False),
        (_expression("NotIn", "a", "b"), False, True, True),
        (_expression("Exists"), True, True, False),
        (_expression("DoesNotExist"), False, False, True),
    ],
)
def test_conditions_hold_as_in_kubernetes(
    selector: Any, among: bool, others: bool, without: bool
) -> None:
    assert _covers(selector, {"tier": "a"}) is among
    assert _covers(selector, {"tier": "c"}) is others
    assert _covers(selector, {}) is without


def test_a_pod_that_was_counted_already_is_not_counted_again() -> None:
    assert not _covers({}, {}, disruptedPods={"p": "2026-01-01T00:00:00Z"})
    assert _covers({}, {}, disruptedPods={"other": "2026-01-01T00:00:00Z"})


async def test_budgets_are_read_with_what_they_allow(answers, client):
    budget = {"metadata": {"name": "b", "namespace": "red"}, "status": {"disruptionsAllowed": 2}}
    answers.by_path[BUDGETS] = {"metadata": {"resourceVersion": "9"}, "items": [budget, {}]}
    listed = await KubernetesCluster(client).list_budgets("red")
    assert [each.status.disruptions_allowed for each in listed.objects] == [2, 0]


async def test_only_the_pods_of_the_node_are_read(answers, client):
    answers.by_path[PODS] = {"metadata": {"resourceVersion": "9"}, "items": []}
    await KubernetesCluster(client).list_pods_on("n1")
    assert answers.asked[-1].query["fieldSelector"] == "spec.nodeName=n1"
