"""An explanation of a pod, a claim or a template is the decision, and changes nothing."""

from typing import Any

import msgspec
import pytest
from support.claims.claim_reviews import (
    CONTROLLER,
    GI,
    ClaimTeam,
    claim_spec,
    claim_template,
    claiming_pod,
    generated,
    resource_claim,
)
from support.fakes.owner_cluster import Manifest

from webhook.admission.explanation import Explanation, explain
from webhook.admission.validating_webhook import ValidatingWebhook
from webhook.context.admission_settings import AdmissionSettings

MEMORY = "nvidia.com/gpumem"


async def explained(team: ClaimTeam, manifest: Manifest, **more: Any) -> Explanation:
    """Return the explanation of a manifest without namespace and uid."""
    bare = {**manifest, "metadata": {"name": manifest["metadata"]["name"]}}
    bare["metadata"].update(more.pop("metadata", {}))
    team.cluster.namespace()
    validating = ValidatingWebhook(team.ledger, settings=AdmissionSettings(), context=team.context)
    body = msgspec.json.encode(bare)
    return await explain(validating, body, deadline=5.0, namespace="team", **more)


@pytest.fixture
def team() -> ClaimTeam:
    team = ClaimTeam(claim_template("fresh", gi=40))
    team.ledger.limit(memory=20 * GI)
    return team


async def test_pod_is_explained_with_the_templates_of_its_namespace(team: ClaimTeam) -> None:
    result = await explained(team, claiming_pod())
    assert (result.allowed, result.demand[MEMORY]) == (True, 8 * GI)
    result = await explained(team, claiming_pod("p", "fresh"))
    assert not result.allowed
    assert "40960" in result.answer
    assert team.ledger.commands() == []
    assert len(team.store.reviewed_pods) == 0


async def test_deployment_is_explained_with_the_templates_of_its_namespace(team: ClaimTeam) -> None:
    template = {"spec": claiming_pod()["spec"]}
    web = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "web"},
        "spec": {"replicas": 3, "template": template},
    }
    result = await explained(team, web)
    assert not result.allowed
    assert "24576" in result.answer


async def test_claim_and_template_are_explained(team: ClaimTeam) -> None:
    result = await explained(team, resource_claim("own", claim_spec(8)))
    assert (result.allowed, result.key) == (True, "resourceclaims.resource.k8s.io/own")
    result = await explained(team, resource_claim("own", claim_spec(30)))
    assert not result.allowed
    result = await explained(team, claim_template("wide", gi=1, count=40))
    assert result.denial is not None
    assert result.denial.reason == "TooManyDevices"


async def test_generated_claim_is_explained_as_it_would_be_decided(team: ClaimTeam) -> None:
    pod = claiming_pod()
    assert (await team.create(pod))["allowed"]
    metadata = generated(pod)["metadata"]
    result = await explained(team, generated(pod), metadata=metadata, username=CONTROLLER)
    assert (result.allowed, result.demand) == (True, {})
    result = await explained(team, generated(pod), metadata=metadata, username="ada")
    assert result.demand[MEMORY] == 8 * GI
    assert len(team.store.claims) == 0
