"""The reviews of kube-apiserver v1.36.3 with its scheduler and controllers are charged once."""

from pathlib import Path
from typing import Any

import msgspec
import pytest
from support.claims.claim_reviews import ClaimTeam

from ledger.core.model.commands import Reserve
from ledger.kube.resource_claims.device_classes import DriverMapping, class_mapping

FILE = Path(__file__).parents[4] / "fixtures" / "dra" / "recorded_reviews.json"
RECORDED: dict[str, Any] = msgspec.json.decode(FILE.read_bytes())
MEMORY = "nvidia.com/gpumem"
CLAIMS = "resourceclaims.resource.k8s.io/"
ASKED = 8_192
"""MiB of the recorded template: 7500Mi in steps of 1Gi."""


def replica() -> ClaimTeam:
    """Return a namespace with the recorded supply, whose driver is mapped."""
    team = ClaimTeam()
    driver = DriverMapping(driver="gpu.example.com", vendor="nvidia", cores=("cores",))
    mapping = class_mapping()
    drivers = (*mapping.drivers, driver)
    team.store.use_mapping(msgspec.structs.replace(mapping, drivers=drivers))
    team.list_classes(*RECORDED["classes"])
    team.list_slices(*RECORDED["slices"])
    team.list_templates(*RECORDED["templates"])
    return team


async def reserved(case: str) -> list[tuple[str, int]]:
    """Return the reserved keys of a case with their MiB, in the order of the reviews."""
    team = replica()
    for review in RECORDED["cases"][case]:
        assert (await team.post(review))["allowed"]
        request = review["request"]
        if (request["resource"]["resource"], request.get("subResource", "")) == ("pods", ""):
            team.cluster.put({"kind": "Pod", **request["object"]})
    return [
        (command.key, command.demand.get(MEMORY, 0))
        for command in team.ledger.commands()
        if isinstance(command, Reserve)
    ]


async def test_recorded_pod_of_a_template_is_charged_and_its_claim_is_not() -> None:
    assert await reserved("pod-of-template") == [("pods/p-tmpl", ASKED)]


async def test_recorded_deployment_is_charged_with_its_pods_and_no_claims() -> None:
    keys = [key for key, _ in await reserved("deployment-of-template")]
    pods = ["pods/web-b8b855bdd-ggvsm", "pods/web-b8b855bdd-srpwl"]
    assert keys == ["deployments.apps/web", *pods]


async def test_recorded_extended_resource_is_charged_in_the_pod() -> None:
    assert await reserved("pod-extended-resource-by-class") == [("pods/p-ext", 0)]


async def test_recorded_named_claim_is_charged_and_its_pods_are_not() -> None:
    assert await reserved("claim-create-named") == [(f"{CLAIMS}named", 20_480)]
    assert await reserved("pods-of-one-named-claim") == []


@pytest.mark.parametrize("case", ["pod-of-template", "pod-extended-resource-by-class"])
async def test_recorded_claim_in_another_users_name_is_charged(case: str) -> None:
    team = replica()
    for review in RECORDED["cases"][case]:
        forged = {**review["request"], "userInfo": {"username": "ada"}}
        assert (await team.post({**review, "request": forged}))["allowed"]
    keys = [command.key for command in team.ledger.commands() if isinstance(command, Reserve)]
    assert [key.startswith(CLAIMS) for key in keys] == [False, True]
