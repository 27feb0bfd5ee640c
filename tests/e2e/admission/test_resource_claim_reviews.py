"""For which resource claims, templates and pods with claims a real API server sends reviews."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest

from tests.e2e.harness.cluster import Manifest
from tests.e2e.harness.controlplane import ControlPlane
from tests.e2e.harness.review_recorder import (
    BOTH,
    REVIEWED,
    VALIDATE,
    ReviewedDeployments,
    ReviewedNamespace,
    deployment,
    make_namespace,
    plain,
    plane,
    recording,
)
from webhook.kinds.kind_catalog import KindCatalog

__all__ = ["plane"]

pytestmark = pytest.mark.e2e

OTHERS: Final = ("fpga.example.com", "nic.example.com")
SCOPE: Final = msgspec.structs.replace(REVIEWED, other_classes=OTHERS)
CREATED: Final = [(VALIDATE, "CREATE", "")]
GPU: Final = {"deviceClassName": "gpu.nvidia.com"}
FPGA, NIC = ({"deviceClassName": name} for name in OTHERS)


class ReviewedClaims(ReviewedNamespace):
    """The same namespace, with resource claims in the place of pods."""

    version = "v1"
    resource = "resourceclaims"

    @property
    def pods(self) -> str:
        group = f"/apis/resource.k8s.io/{self.version}"
        return f"{group}/namespaces/{self.namespace}/{self.resource}"

    async def made(self, spec: Manifest) -> int:
        """Return how many reviews the creation of a claim makes; nothing is stored."""
        seen = await self.created(claim(spec), params={"dryRun": "All"})
        assert set(seen) <= set(CREATED)
        return len(seen)


class ReviewedTemplates(ReviewedClaims):
    """The same namespace, with templates of resource claims in the place of pods."""

    resource = "resourceclaimtemplates"


def claim(spec: Manifest) -> Manifest:
    return {"metadata": {"name": "a"}, "spec": spec}


def exactly(*ways: Manifest) -> Manifest:
    """Return the spec of a claim with a request for each of these classes."""
    requests = [{"name": f"r{number}", "exactly": way} for number, way in enumerate(ways)]
    return {"devices": {"requests": requests}}


def either(*ways: Manifest) -> dict[str, Any]:
    """Return a request for the first available of these classes."""
    return {"firstAvailable": [{"name": f"s{n}", **way} for n, way in enumerate(ways)]}


def requesting(*requests: Manifest) -> Manifest:
    """Return the spec of a claim with these requests."""
    named = [{"name": f"r{number}", **request} for number, request in enumerate(requests)]
    return {"devices": {"requests": named}}


def with_claim(named: Manifest) -> Manifest:
    """Return a pod that requests no cards but a resource claim."""
    manifest = plain()
    manifest["spec"]["resourceClaims"] = [{"name": "c", **named}]
    return manifest


CHARGED: Final = {
    "a class of GPUs": exactly(GPU),
    "GPUs beside others": exactly(FPGA, GPU),
    "GPUs as an alternative": requesting(either(FPGA, GPU)),
    "GPUs beside alternatives": requesting(either(FPGA, NIC), {"exactly": GPU}),
    "all devices": exactly({**GPU, "allocationMode": "All"}),
}
FREE: Final = {
    "another class": exactly(FPGA),
    "other classes": exactly(FPGA, NIC),
    "alternatives of others": requesting(either(FPGA, NIC)),
    "others and alternatives": requesting({"exactly": NIC}, either(NIC, FPGA)),
    "no requests": {"devices": {}},
    "nothing": {},
}
ALTERNATIVES: Final = requesting(*(either(*[FPGA] * 8) for _ in range(32)))
"""The largest claim."""


@pytest.fixture
async def setting(plane: ControlPlane, tmp_path: Path) -> AsyncIterator[ReviewedNamespace]:
    async with recording(plane, tmp_path, SCOPE) as reviewed:
        yield reviewed


def within(setting: ReviewedNamespace, kind: type[ReviewedClaims]) -> ReviewedClaims:
    return kind(setting.cluster, setting.recorder, setting.namespace)


@pytest.mark.parametrize("kind", [ReviewedClaims, ReviewedTemplates])
async def test_claims_are_reviewed_unless_no_class_has_gpus(
    setting: ReviewedNamespace, kind: type[ReviewedClaims]
) -> None:
    claims = within(setting, kind)
    wrapped = (lambda spec: {"spec": spec}) if kind is ReviewedTemplates else dict
    counted = {what: await claims.made(wrapped(spec)) for what, spec in (CHARGED | FREE).items()}
    assert counted == dict.fromkeys(CHARGED, 1) | dict.fromkeys(FREE, 0)


async def test_claims_of_an_earlier_version_are_reviewed_in_ours(
    setting: ReviewedNamespace,
) -> None:
    claims = within(setting, ReviewedClaims)
    claims.version = "v1beta2"
    setting.recorder.versions.clear()
    assert await claims.made(exactly(GPU)) == 1
    assert await claims.made(exactly(FPGA)) == 0
    assert setting.recorder.versions == {"resource.k8s.io/v1"}


async def test_the_largest_claim_is_within_the_cost_of_conditions(
    plane: ControlPlane, tmp_path: Path
) -> None:
    many = [f"{number:03}.{'x' * 60}.example.com" for number in range(255)]
    scope = msgspec.structs.replace(SCOPE, kinds=KindCatalog(()), other_classes=(*many, OTHERS[0]))
    async with recording(plane, tmp_path, scope) as setting:
        assert await within(setting, ReviewedClaims).made(ALTERNATIVES) == 0


async def test_updates_of_claims_are_reviewed_when_labels_or_their_pod_change(
    setting: ReviewedNamespace,
) -> None:
    claims = within(setting, ReviewedClaims)
    assert await claims.created(claim(exactly(GPU))) == CREATED
    owner = {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "u", "controller": True}
    kubernetes = "resource.kubernetes.io"
    for metadata, reviewed in (
        ({"annotations": {"example.com/a": "b"}, "finalizers": ["example.com/kept"]}, False),
        ({"annotations": {f"{kubernetes}/pod-claim-name": "c"}}, True),
        ({"annotations": {f"{kubernetes}/extended-resource-claim": "true"}}, True),
        ({"ownerReferences": [owner]}, True),
        ({"ownerReferences": None}, True),
        ({"labels": {"team": "b"}}, True),
        ({"finalizers": None}, False),
    ):
        seen = await claims.patched({"metadata": metadata})
        assert seen == [(VALIDATE, "UPDATE", "")] * reviewed
    assert await claims.patched(allocated("d1"), "/status") == []


def allocated(device: str, *pods: str) -> Manifest:
    """Return a patch of a claim's status with an allocation, reserved for some pods."""
    result = {"request": "r0", "driver": "gpu.nvidia.com", "pool": "n1", "device": device}
    reserved = [{"resource": "pods", "name": name, "uid": name} for name in pods]
    return {"status": {"allocation": {"devices": {"results": [result]}}, "reservedFor": reserved}}


async def test_allocations_are_reviewed_if_wanted(plane: ControlPlane, tmp_path: Path) -> None:
    scope = msgspec.structs.replace(SCOPE, review_claim_status=True)
    async with recording(plane, tmp_path, scope) as setting:
        claims = within(setting, ReviewedClaims)
        await claims.created(claim(exactly(GPU)))
        written = [(VALIDATE, "UPDATE", "status")]
        assert await claims.patched(allocated("d1", "p"), "/status") == written
        assert await claims.patched(allocated("d1", "p", "q"), "/status") == []
        cleared = {"status": {"allocation": None, "reservedFor": None}}
        assert await claims.patched(cleared, "/status") == []
        await setting.cluster.must("DELETE", f"{claims.pods}/a")
        assert await claims.created(claim(exactly(FPGA))) == []
        assert await claims.patched(allocated("d1"), "/status") == []


async def test_claims_in_exempt_namespaces_are_not_reviewed(setting: ReviewedNamespace) -> None:
    await make_namespace(setting.cluster, "exempt")
    assert await ReviewedClaims(setting.cluster, setting.recorder, "exempt").made(exactly(GPU)) == 0


@pytest.mark.parametrize("field", ["resourceClaimName", "resourceClaimTemplateName"])
async def test_pods_with_claims_are_always_reviewed(setting: ReviewedNamespace, field: str) -> None:
    assert await setting.created(with_claim({field: "b"})) == BOTH
    assert await setting.patched({"spec": {"activeDeadlineSeconds": 60}}) == [
        (VALIDATE, "UPDATE", "")
    ]
    assert await setting.patched({"metadata": {"finalizers": []}}) == []


async def test_templates_of_workloads_with_claims_are_always_reviewed(
    setting: ReviewedNamespace,
) -> None:
    deployments = ReviewedDeployments(setting.cluster, setting.recorder, setting.namespace)
    asking = deployment(with_claim({"resourceClaimTemplateName": "b"}))
    assert await deployments.created(asking) == CREATED
    taken = {"spec": {"template": {"spec": {"resourceClaims": None}}}}
    given = {"spec": {"template": {"spec": asking["spec"]["template"]["spec"]}}}
    for change in (taken, given):
        # Again when the Deployment's controller has written in between.
        assert set(await deployments.patched(change)) == {(VALIDATE, "UPDATE", "")}
    assert await deployments.patched({"metadata": {"annotations": {"a": "b"}}}) == []
