"""An explanation is the decision itself, and changes nothing."""

import json
from typing import Any

import pytest
from support.builders.admission_reviews import (
    GPU,
    MEMORY,
    CoreLedger,
    pod,
    recorded,
    review,
    serving,
)
from support.fakes.owner_cluster import (
    CRONJOBS,
    DEPLOYMENTS,
    OwnerCluster,
    around,
    manifest,
    template,
)

from ledger.core.model.commands import Describe, RegisterCluster
from ledger.kube.api.cluster_errors import ClusterError
from webhook.admission.explanation import Explanation, NamespaceMissing, OtherNamespace, explain
from webhook.api.admission_review import BadReview


async def explained(thing: Any, ledger: CoreLedger, **more: Any) -> Explanation:
    """Explain what is given as a value."""
    async with serving(ledger, context=around(ledger)) as service:
        body = json.dumps(thing).encode()
        explanation = await explain(service.validating, body, deadline=5, **more)
    assert ledger.commands() == [], "an explanation is a dry run"
    return explanation


async def test_a_review_is_explained_with_its_numbers() -> None:
    ledger = CoreLedger()
    ledger.limit(memory=7000)
    explanation = await explained(review(pod({GPU: "1", MEMORY: "8k"})), ledger)
    assert not explanation.allowed
    assert explanation.denial is not None
    assert "allows 7000, nothing is used" in explanation.answer
    assert (explanation.namespace, explanation.key) == ("east/team", "pods/p")
    assert explanation.demand == {GPU: 1, MEMORY: 8000}


async def test_a_bare_manifest_is_explained_as_its_creation() -> None:
    manifest = pod({GPU: "1", MEMORY: "8k"})
    del manifest["metadata"]
    manifest["metadata"] = {"generateName": "g-"}
    ledger = CoreLedger()
    explanation = await explained(manifest, ledger, namespace="team", username="ada")
    assert explanation.allowed
    assert explanation.answer == "Allowed: there is room."
    assert (explanation.namespace, explanation.key) == ("east/team", "pods/g-explain")
    [(command, dry_run)] = ledger.submitted
    assert dry_run
    assert command.actor == "ada"


async def test_manifest_names_its_own_namespace() -> None:
    explanation = await explained(pod({GPU: "1", MEMORY: "1"}), CoreLedger())
    assert explanation.namespace == "east/team"


async def test_an_unusable_name_is_denied_in_the_namespace_of_the_manifest() -> None:
    thing = pod({GPU: "1", MEMORY: "1"})
    thing["metadata"]["name"] = "a/b"
    explanation = await explained(thing, CoreLedger())
    assert not explanation.allowed
    assert explanation.namespace == "east/team"
    assert "at most 253 characters and no slash. [InvalidReview" in explanation.answer


async def test_object_of_another_namespace_is_refused_with_both_names() -> None:
    ledger = CoreLedger()
    ledger.limit(cards=2)
    with pytest.raises(
        OtherNamespace, match=r"namespace 'team', .* match the namespace 'other' that"
    ):
        await explained(pod({GPU: "1", MEMORY: "1"}), ledger, namespace="other")
    assert ledger.submitted == [], "it is not even asked about"


async def test_missing_namespace_is_named_and_nothing_is_decided() -> None:
    ledger, cluster = CoreLedger(), OwnerCluster()
    cluster.namespace("team")
    new_pod = pod({GPU: "1"}, namespace="")
    async with serving(ledger, context=around(ledger, cluster)) as service:
        body = json.dumps(new_pod).encode()
        with pytest.raises(NamespaceMissing, match="'nowhere' does not exist in cluster east"):
            await explain(service.validating, body, deadline=5, namespace="nowhere")
        assert ledger.submitted == []
        assert (await explain(service.validating, body, deadline=5, namespace="team")).allowed
        cluster.failing = ClusterError("refused")
        assert (await explain(service.validating, body, deadline=5, namespace="nowhere")).allowed


async def test_undescribed_namespace_of_a_watched_cluster_is_missing() -> None:
    ledger, new_pod = CoreLedger(), pod({GPU: "1"}, namespace="")
    ledger.apply(RegisterCluster("east", "uid"))
    assert (await explained(new_pod, ledger, namespace="nowhere")).allowed, "none is described yet"
    ledger.apply(Describe("east/team", "kubernetes.io/metadata.name=team"))
    assert (await explained(new_pod, ledger, namespace="team")).allowed
    with pytest.raises(NamespaceMissing, match="'nowhere' does not exist in cluster east"):
        await explained(new_pod, ledger, namespace="nowhere")


async def test_unknown_namespace_is_named_when_no_cluster_is_watched() -> None:
    ledger, new_pod = CoreLedger(), pod({GPU: "1"}, namespace="")
    ledger.limit(cards=2)
    with pytest.raises(NamespaceMissing, match="'nowhere' of cluster east is not in the ledger"):
        await explained(new_pod, ledger, namespace="nowhere")
    assert (await explained(new_pod, ledger)).allowed, "the request names no namespace"
    assert (await explained(new_pod, ledger, namespace="team")).allowed


async def test_other_namespaces_are_not_explained_when_one_is_given() -> None:
    ledger = CoreLedger()
    card = {GPU: "1", MEMORY: "1"}
    elsewhere, nowhere = review(pod(card)), review(pod(card))
    elsewhere["request"]["object"]["metadata"]["namespace"] = "mine"
    nowhere["request"]["namespace"] = ""
    old = review(pod(card, namespace="mine"), pod(card), operation="UPDATE", namespace="mine")
    for thing in (pod(card), review(pod(card)), elsewhere, nowhere, old):
        with pytest.raises(OtherNamespace, match="team"):
            await explained(thing, ledger, namespace="mine")
    assert ledger.submitted == [], "it is not even asked about"
    assert (await explained(pod(card), ledger, namespace="team")).allowed


async def test_a_manifest_of_any_known_kind_is_explained_as_its_creation() -> None:
    ledger = CoreLedger()
    ledger.limit(cards=2)
    web = manifest(DEPLOYMENTS, "web", replicas=3)
    for field in ("uid", "resourceVersion", "namespace"):
        del web["metadata"][field]
    explanation = await explained(web, ledger, namespace="team", username="ada")
    assert not explanation.allowed
    assert "allows 2, nothing is used" in explanation.answer
    assert (explanation.namespace, explanation.key) == ("east/team", "deployments.apps/web")
    assert explanation.demand == {GPU: 3, MEMORY: 24_000}


async def test_manifest_of_an_uncharged_kind_warns_of_pods_that_never_run() -> None:
    ledger = CoreLedger()
    ledger.limit(cards=0)
    nightly = manifest(CRONJOBS, "nightly")
    nightly["spec"] = {"jobTemplate": {"spec": {"template": template()}}}
    explanation = await explained(nightly, ledger)
    assert explanation.allowed
    assert explanation.warnings[0].startswith("its pods can never run all at once")


async def test_a_recorded_update_of_a_workload_can_be_explained() -> None:
    request = recorded("deployment-update-image", "validate")[0][1]
    assert (await explained(request, CoreLedger())).allowed


async def test_answer_is_that_nothing_would_be_charged_when_demand_is_empty() -> None:
    explanation = await explained({"apiVersion": "v1", "kind": "Pod"}, CoreLedger())
    assert explanation.allowed
    assert explanation.answer == "Allowed: nothing would be charged."


async def test_a_recorded_review_of_the_mutating_webhook_can_be_explained() -> None:
    [(_, request)] = recorded("pod-create-generate-name", "mutate")
    explanation = await explained(request, CoreLedger())
    assert explanation.allowed
    assert explanation.key == "pods/g-explain"


async def test_a_recorded_update_can_be_explained() -> None:
    [(_, request)] = recorded("pod-resize", "validate")
    assert (await explained(request, CoreLedger())).allowed


@pytest.mark.parametrize(
    ("thing", "field"),
    [
        ([], "$"),
        ({"kind": "Pod"}, "$.apiVersion"),
        ({"apiVersion": "apps/v2/x", "kind": "Deployments"}, "$.kind"),
        ({"apiVersion": "example.com/v1", "kind": "Deployment"}, "$.kind"),
        ({"apiVersion": "apps/v1", "kind": "Deployment", "spec": 5}, "$.spec"),
        ({"apiVersion": "v1", "kind": "Pod", "spec": 5}, "$.spec"),
        ({"apiVersion": "v1", "kind": "Pod", "metadata": 5}, "$.metadata"),
    ],
)
async def test_what_cannot_be_explained_names_the_field(thing: Any, field: str) -> None:
    with pytest.raises(BadReview) as caught:
        await explained(thing, CoreLedger())
    assert caught.value.field == field
