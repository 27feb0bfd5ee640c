"""Which reviews a real API server sends for our webhook configurations, and when it goes without.

A control plane of its own, and a webhook that allows everything and remembers what came.
"""

import uuid
from pathlib import Path
from typing import Any, Final

import pytest

from ledger.kube.client.api_client import ApiClient
from ledger.runtime.tls import server_certificate
from tests.e2e.conftest import _connected
from tests.e2e.harness.cluster import Manifest
from tests.e2e.harness.controlplane import ADMIN, ControlPlane
from tests.e2e.harness.polling import eventually
from tests.e2e.harness.review_recorder import (
    BOTH,
    EXEMPT,
    RESOURCES,
    VALIDATE,
    ReviewedDeployments,
    ReviewedNamespace,
    Seen,
    deployment,
    make_namespace,
    owned_by,
    plain,
    plane,
    register,
    setting,
)
from tests.e2e.objects.pods import pod
from webhook.configurations import webhook_configurations
from webhook.configurations.webhook_configurations import ReviewScope, WebhookAddress
from webhook.kinds.kind_catalog import KindCatalog

__all__ = ["plane", "setting"]

pytestmark = pytest.mark.e2e


async def test_a_pod_that_asks_for_cards_is_reviewed_by_both(setting: ReviewedNamespace) -> None:
    assert await setting.created(pod("a")) == BOTH


async def test_a_pod_that_asks_for_none_is_not_reviewed(setting: ReviewedNamespace) -> None:
    assert await setting.created(plain()) == []


async def test_a_pod_without_any_resources_is_not_reviewed(setting: ReviewedNamespace) -> None:
    manifest = plain()
    del manifest["spec"]["containers"][0]["resources"]
    assert await setting.created(manifest) == []


async def test_a_pod_of_which_only_an_init_container_asks_is_reviewed(
    setting: ReviewedNamespace,
) -> None:
    manifest = plain()
    asking = {"limits": {"nvidia.com/gpumem": "8000"}}
    manifest["spec"]["initContainers"] = [{"name": "init", "image": "i", "resources": asking}]
    assert await setting.created(manifest) == BOTH


async def test_a_pod_whose_runtime_class_adds_what_is_counted_is_reviewed(
    setting: ReviewedNamespace,
) -> None:
    name = setting.namespace
    heavy = {"handler": "heavy", "overhead": {"podFixed": {"nvidia.com/gpumem": "10"}}}
    classes = "/apis/node.k8s.io/v1/runtimeclasses"
    await setting.cluster.must("POST", classes, {"metadata": {"name": name}, **heavy})
    manifest = plain()
    manifest["spec"]["runtimeClassName"] = name
    assert await setting.created(manifest) == BOTH
    await setting.cluster.must("DELETE", f"{classes}/{name}")


@pytest.mark.parametrize(
    "metadata",
    [
        {"annotations": {"hami.io/vgpu-devices-allocated": "GPU-1,NVIDIA,8000,30:;"}},
        {"annotations": {"gpuledger.io/stamp": "forged"}},
        {"labels": {"hami.io/vgpu-node": "n1"}},
    ],
)
async def test_a_pod_that_claims_an_allocation_is_reviewed(
    setting: ReviewedNamespace, metadata: dict[str, Any]
) -> None:
    assert await setting.created(plain(**metadata)) == BOTH


@pytest.mark.parametrize("namespace", EXEMPT)
async def test_exempt_namespaces_are_not_reviewed(
    setting: ReviewedNamespace, namespace: str
) -> None:
    await make_namespace(setting.cluster, namespace)
    exempt = ReviewedNamespace(setting.cluster, setting.recorder, namespace)
    assert await exempt.created(pod("a"), params={"dryRun": "All"}) == []


async def test_a_dry_run_is_reviewed(setting: ReviewedNamespace) -> None:
    assert await setting.created(pod("a"), params={"dryRun": "All"}) == BOTH


async def test_an_update_that_changes_nothing_judged_is_not_reviewed(
    setting: ReviewedNamespace,
) -> None:
    await setting.created(pod("a", finalizers=["example.com/tracking"]))
    assert await setting.patched({"metadata": {"finalizers": []}}) == []


async def test_labels_are_reviewed_until_it_is_known_which_quotas_select_by(
    setting: ReviewedNamespace,
) -> None:
    await setting.created(pod("a"))
    assert len(await setting.patched({"metadata": {"labels": {"app": "b"}}})) == 1


@pytest.mark.parametrize(
    "change",
    [
        {"metadata": {"annotations": {"hami.io/bind-phase": "success"}}},
        {"metadata": {"labels": {"hami.io/vgpu-node": "n1"}}},
        {"spec": {"activeDeadlineSeconds": 60}},
    ],
)
async def test_an_update_of_what_is_judged_is_reviewed(
    setting: ReviewedNamespace, change: Manifest
) -> None:
    await setting.created(pod("a"))
    assert await setting.patched(change) == [(VALIDATE, "UPDATE", "")]


async def test_an_update_that_takes_a_claim_away_is_reviewed(setting: ReviewedNamespace) -> None:
    await setting.created(plain(annotations={"gpuledger.io/stamp": "s"}))
    change = {"metadata": {"annotations": {"gpuledger.io/stamp": None}}}
    assert await setting.patched(change) == [(VALIDATE, "UPDATE", "")]


async def test_a_resize_is_reviewed(setting: ReviewedNamespace) -> None:
    manifest = pod("a")
    manifest["spec"]["containers"][0]["resources"]["requests"] = {"cpu": "1"}
    await setting.created(manifest)
    resized = [{"name": "main", "resources": {"requests": {"cpu": "2"}}}]
    path = f"{setting.pods}/a/resize"
    kind = {"Content-Type": "application/strategic-merge-patch+json"}
    change = {"spec": {"containers": resized}}
    await setting.cluster.must("PATCH", path, change, headers=kind)
    assert setting.recorder.of(setting.namespace) == [(VALIDATE, "UPDATE", "resize")]


async def test_privileged_ephemeral_containers_are_reviewed_in_pods_with_cards(
    setting: ReviewedNamespace,
) -> None:
    kind = {"Content-Type": "application/strategic-merge-patch+json"}

    async def debug(pod: str, name: str, privileged: bool) -> list[Seen]:
        context = {"securityContext": {"privileged": privileged}}
        added = {"name": name, "image": "i", **context}
        path = f"{setting.pods}/{pod}/ephemeralcontainers"
        change = {"spec": {"ephemeralContainers": [added]}}
        await setting.cluster.must("PATCH", path, change, headers=kind)
        return setting.recorder.of(setting.namespace, pod)

    await setting.created(pod("a"))
    assert await debug("a", "one", privileged=False) == []
    assert await debug("a", "two", privileged=True) == [(VALIDATE, "UPDATE", "ephemeralcontainers")]
    other = plain()
    other["metadata"]["name"] = "b"
    other["spec"]["containers"][0]["resources"] = {"limits": {"x.io/gpu": "1"}}
    await setting.cluster.must("POST", setting.pods, other)
    assert await debug("b", "one", privileged=True) == []
    mappings = [{"containerName": "main", "resourceName": "x.io/gpu", "requestName": "r"}]
    served = {"resourceClaimName": "c", "requestMappings": mappings}
    status = {"status": {"extendedResourceClaimStatus": served}}
    await setting.cluster.must("PATCH", f"{setting.pods}/b/status", status, headers=kind)
    assert await debug("b", "two", privileged=True) == [(VALIDATE, "UPDATE", "ephemeralcontainers")]


async def test_a_status_and_a_deletion_are_not_reviewed(setting: ReviewedNamespace) -> None:
    await setting.created(pod("a"))
    assert await setting.patched({"status": {"phase": "Running"}}, "/status") == []
    await setting.cluster.must("DELETE", f"{setting.pods}/a?gracePeriodSeconds=0")
    assert setting.recorder.of(setting.namespace) == []


@pytest.mark.parametrize(
    "metadata",
    [
        {"annotations": {"hami.io/vgpu-devices-allocated": "GPU-1,NVIDIA,8000,30:;"}},
        {"labels": {"hami.io/vgpu-node": "n1"}},
    ],
)
async def test_a_status_that_writes_a_claim_or_takes_it_away_is_reviewed(
    setting: ReviewedNamespace, metadata: dict[str, dict[str, str]]
) -> None:
    await setting.created(plain())
    [(field, texts)] = metadata.items()
    for value in ({**texts}, dict.fromkeys(texts, "other"), dict.fromkeys(texts)):
        change = {"metadata": {field: value}, "status": {"message": "a"}}
        # Again when a controller has written in between.
        assert set(await setting.patched(change, "/status")) == {(VALIDATE, "UPDATE", "status")}
        assert await setting.patched({"status": {"message": "b"}}, "/status") == []
    assert await setting.patched({"metadata": {field: {"own": "x"}}}, "/status") == []


# Owners


KEPT: Final = ["example.com/kept"]
"""Keeps what names an owner that does not exist from being removed before it was looked at."""

ADOPTED: Final = owned_by("ReplicaSet")


async def test_an_update_that_names_another_controller_is_reviewed(
    setting: ReviewedNamespace,
) -> None:
    await setting.created(pod("a", finalizers=KEPT))
    assert await setting.patched(owned_by("ReplicaSet", controller=False)) == []
    for change in (ADOPTED, owned_by("ReplicaSet", "u-2")):
        # Again when the garbage collector has written in between.
        assert set(await setting.patched(change)) == {(VALIDATE, "UPDATE", "")}


async def test_an_update_that_gives_a_controller_up_is_not_reviewed(
    setting: ReviewedNamespace,
) -> None:
    references = ADOPTED["metadata"]["ownerReferences"]
    await setting.created(pod("a", ownerReferences=references, finalizers=KEPT))
    assert await setting.patched({"metadata": {"ownerReferences": None}}) == []


# Workloads and definitions


@pytest.fixture
def deployments(setting: ReviewedNamespace) -> ReviewedDeployments:
    return ReviewedDeployments(setting.cluster, setting.recorder, setting.namespace)


REVIEWED: Final = [(VALIDATE, "UPDATE", "")]


async def test_a_workload_that_asks_for_cards_is_validated(
    deployments: ReviewedDeployments,
) -> None:
    assert await deployments.created(deployment(pod("a"))) == [(VALIDATE, "CREATE", "")]
    assert set(await deployments.patched({"spec": {"paused": True}})) == set(REVIEWED)
    assert set(await deployments.patched({"metadata": {"labels": {"tier": "gold"}}})) == set(
        REVIEWED
    )
    assert await deployments.patched({"metadata": {"annotations": {"a": "b"}}}) == []
    assert set(await deployments.patched(owned_by("Deployment"))) == set(REVIEWED)


async def test_a_workload_that_asks_for_none_is_not_reviewed(
    deployments: ReviewedDeployments,
) -> None:
    assert await deployments.created(deployment(plain())) == []
    assert await deployments.patched({"spec": {"paused": True}}) == []


@pytest.mark.parametrize("template", [pod("a"), plain()], ids=["cards", "none"])
async def test_every_change_of_a_scale_is_reviewed(
    deployments: ReviewedDeployments, template: Manifest
) -> None:
    await deployments.created(deployment(template))
    scaled = await deployments.patched({"spec": {"replicas": 2}}, "/scale")
    # Again when the Deployment's controller has written in between.
    assert set(scaled) == {(VALIDATE, "UPDATE", "scale")}


async def test_scales_in_exempt_namespaces_are_not_reviewed(setting: ReviewedNamespace) -> None:
    await make_namespace(setting.cluster, "exempt")
    exempt = ReviewedDeployments(setting.cluster, setting.recorder, "exempt")
    await exempt.created(deployment(plain()))
    assert await exempt.patched({"spec": {"replicas": 2}}, "/scale") == []
    await setting.cluster.must("DELETE", f"{exempt.pods}/a")


async def test_definitions_of_limits_are_reviewed_when_their_spec_changes(
    setting: ReviewedNamespace,
) -> None:
    path = f"/api/v1/namespaces/{setting.namespace}/resourcequotas"
    quota = {"metadata": {"name": "a"}, "spec": {"hard": {"limits.nvidia.com/gpu": "1"}}}
    await setting.cluster.must("POST", path, quota)
    assert setting.recorder.of(setting.namespace) == [(VALIDATE, "CREATE", "")]
    await setting.cluster.patch(f"{path}/a", {"metadata": {"labels": {"a": "b"}}})
    assert setting.recorder.of(setting.namespace) == []
    await setting.cluster.patch(f"{path}/a", {"spec": {"hard": {"limits.nvidia.com/gpu": "2"}}})
    # Again when the controller of quotas has written the status in between.
    assert set(setting.recorder.of(setting.namespace)) == set(REVIEWED)


async def test_without_the_service_only_what_it_guards_is_refused(
    plane: ControlPlane, tmp_path: Path
) -> None:
    files = server_certificate.ensure(tmp_path / "tls", (), server_certificate.utc_now())
    authority = (tmp_path / "tls" / "ca.crt").read_bytes()
    assert files.authority
    async with _connected(plane) as cluster:
        namespace = f"team-{uuid.uuid4().hex[:8]}"
        await make_namespace(cluster, namespace)
        pods = f"/api/v1/namespaces/{namespace}/pods"
        await register(plane, "https://127.0.0.1:9", authority)

        async def look() -> int:
            return (await cluster.ask("POST", f"{pods}?dryRun=All", pod("canary"))).status

        await eventually(look, lambda status: status == 500, within=30, what="it fails closed")
        unguarded = plain(finalizers=["example.com/tracking"])
        await cluster.must("POST", pods, unguarded)
        released = await cluster.patch(f"{pods}/a", {"metadata": {"finalizers": None}})
        assert released.status == 200
        deployments = f"/apis/apps/v1/namespaces/{namespace}/deployments"
        asking = deployment(pod("a"))
        assert (await cluster.ask("POST", deployments, asking)).status == 500
        await cluster.must("POST", deployments, deployment(plain()))
        scaled = await cluster.patch(f"{deployments}/a/scale", {"spec": {"replicas": 2}})
        assert scaled.status == 200
        quota = {"metadata": {"name": "a"}, "spec": {"hard": {"pods": "9"}}}
        await cluster.must("POST", f"/api/v1/namespaces/{namespace}/resourcequotas", quota)


async def test_registering_again_changes_what_is_different(plane: ControlPlane) -> None:
    await register(plane, "https://one.example", b"one")
    await register(plane, "https://two.example", b"two")
    async with _connected(plane) as cluster:
        path = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations/gpuledger"
        webhooks = (await cluster.must("GET", path))["webhooks"]
    assert len(webhooks) == 7 + len(list(KindCatalog.load()))
    for webhook in webhooks:
        assert webhook["clientConfig"] == {
            "url": "https://two.example/admission/validate",
            "caBundle": "dHdv",
        }
    assert webhooks[0]["failurePolicy"] == "Fail"


async def test_kinds_that_are_taken_away_are_not_reviewed_any_more(plane: ControlPlane) -> None:
    await register(plane, "https://one.example", b"one")
    reviewed = ReviewScope(RESOURCES, KindCatalog(()), EXEMPT)
    configurations = webhook_configurations.configurations(
        WebhookAddress("https://one.example", b"one"), reviewed
    )
    async with await ApiClient.connect(plane.kubeconfig(ADMIN)) as client:
        await webhook_configurations.register(client, configurations)
    async with _connected(plane) as cluster:
        path = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations/gpuledger"
        webhooks = (await cluster.must("GET", path))["webhooks"]
    assert [webhook["name"].split(".")[0] for webhook in webhooks] == [
        "pods",
        "claims",
        "ephemeralcontainers",
        "resourceclaims",
        "resourceclaimtemplates",
        "definitions",
    ]
