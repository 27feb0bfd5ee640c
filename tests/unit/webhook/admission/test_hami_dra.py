"""Pods that HAMi-DRA's webhook rewrites: the claim that it writes is charged, and the pod is not.

The claim has the form of `buildResourceClaim` in HAMi-DRA v0.2.2: by name, without owner and
annotations, with a count and capacities without a domain, and selectors by annotations of the pod.
"""

from typing import Any, Final

from support.builders.admission_reviews import pod
from support.claims.claim_reviews import (
    GI,
    ClaimTeam,
    device_class,
    resource_claim,
    resource_slice,
)
from support.fakes.owner_cluster import Manifest

DRIVER: Final = "hami-core-gpu.project-hami.io"
WRITER: Final = "system:serviceaccount:hami-dra-system:hami-dra-webhook"
CORES: Final = {
    "value": "100",
    "requestPolicy": {"default": "10", "validRange": {"min": "1", "step": "1"}},
}
CLAIM: Final = "team-p-main"
KEY: Final = f"resourceclaims.resource.k8s.io/{CLAIM}"


def cluster(**policy: Any) -> ClaimTeam:
    """Return a namespace beside HAMi's driver."""
    team = ClaimTeam(**policy)
    team.list_classes(device_class(DRIVER, DRIVER))
    published = resource_slice()
    published["spec"]["driver"] = DRIVER
    for device in published["spec"]["devices"]:
        device["attributes"]["productName"] = {"string": "NVIDIA H100"}
        device["capacity"] = {
            **device["capacity"],
            "cores": {"value": "100", "requestPolicy": CORES},
        }
    team.list_slices(published)
    return team


def written(count: int = 2, memory: str = "8000Mi", cores: str = "30") -> Manifest:
    """Return the claim for a container."""
    selector = f'device.attributes["{DRIVER}"].productName in ["NVIDIA H100"]'
    exactly = {
        "deviceClassName": DRIVER,
        "allocationMode": "ExactCount",
        "count": count,
        "capacity": {"requests": {"memory": memory, "cores": cores}},
        "selectors": [{"cel": {"expression": selector}}],
    }
    return resource_claim(CLAIM, {"devices": {"requests": [{"name": "gpu", "exactly": exactly}]}})


def rewritten() -> Manifest:
    """Return the pod without cards, which names the claim."""
    body = pod({}, name="p", uid="u-p")
    body["spec"]["resourceClaims"] = [{"name": CLAIM, "resourceClaimName": CLAIM}]
    body["spec"]["containers"][0]["resources"] = {"claims": [{"name": CLAIM}]}
    return body


async def test_claim_is_charged_and_its_pod_adds_nothing() -> None:
    team = cluster()
    team.ledger.limit(memory=16 * GI)
    assert (await team.create(written(), WRITER))["allowed"]
    assert team.reserved() == {KEY: 16 * GI}, "2 cards, each 8000 MiB in steps of 1 GiB"
    assert (await team.create(rewritten()))["allowed"]
    assert team.reserved() == {KEY: 16 * GI}


async def test_claim_beyond_the_quota_is_denied_before_the_pod_exists() -> None:
    team = cluster()
    team.ledger.limit(memory=15 * GI)
    response = await team.create(written(), WRITER)
    assert not response["allowed"]
    assert f"would need {16 * GI} MiB" in response["status"]["message"]
