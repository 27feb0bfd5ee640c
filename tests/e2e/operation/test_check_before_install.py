"""`gpuledger check --before-install` on a real API server on which nothing of ours is installed."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from tests.e2e.conftest import _connected
from tests.e2e.harness import own_control_plane
from tests.e2e.harness.authorization import are_applied
from tests.e2e.harness.cluster import Cluster
from tests.e2e.harness.controlplane import ADMIN, TENANT, ControlPlane
from tests.e2e.operation.support.install_check import FAILED, CheckedInstall, check

pytestmark = pytest.mark.e2e

CLASSES: Final = "/apis/storage.k8s.io/v1/storageclasses"
DEFINITIONS: Final = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
ROLES: Final = "/apis/rbac.authorization.k8s.io/v1/clusterroles"
RBAC: Final = "rbac.authorization.k8s.io/v1"


@pytest.fixture(scope="module")
def plane(assets: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    with own_control_plane.control_plane(assets, tmp_path_factory.mktemp("bare")) as running:
        yield running


@pytest.fixture
async def cluster(plane: ControlPlane) -> AsyncIterator[Cluster]:
    """Make a default StorageClass, which the control plane lacks."""
    async with _connected(plane) as admin:
        default = {"storageclass.kubernetes.io/is-default-class": "true"}
        made = {
            "metadata": {"name": "standard", "annotations": default},
            "provisioner": "kubernetes.io/no-provisioner",
        }
        await admin.ask("POST", CLASSES, made)
        yield admin


async def ask(plane: ControlPlane, user: str = ADMIN, *options: str) -> CheckedInstall:
    return await check(plane.kubeconfig(user), "--before-install", *options)


async def test_nothing_stops_an_installation_on_a_bare_cluster(
    plane: ControlPlane, cluster: Cluster
) -> None:
    checked = await ask(plane)
    assert (checked.status, checked.those(FAILED), checked.those("not asked")) == (0, [], [])
    assert checked.findings["hami"]["observation"] == "HAMi is not installed"


async def test_a_cluster_without_storage_classes_fails(
    plane: ControlPlane, cluster: Cluster
) -> None:
    await cluster.must("DELETE", f"{CLASSES}/standard")
    checked = await ask(plane)
    assert (checked.status, checked.those(FAILED)) == (1, ["storage"])
    assert "nats.storage.class" in checked.findings["storage"]["remedy"]


async def test_a_user_without_rights_is_named_with_the_missing_ones(
    plane: ControlPlane, cluster: Cluster
) -> None:
    checked = await ask(plane, TENANT)
    assert (checked.status, checked.those(FAILED)) == (1, ["rights"])
    assert "clusterroles.rbac.authorization.k8s.io" in checked.findings["rights"]["observation"]


async def test_a_name_of_another_owner_fails_until_helm_owns_it(
    plane: ControlPlane, cluster: Cluster
) -> None:
    role: dict[str, Any] = {"metadata": {"name": "gpuledger"}, "rules": []}
    await cluster.must("POST", ROLES, role)
    checked = await ask(plane)
    assert checked.those(FAILED) == ["names"]
    assert "ClusterRole gpuledger" in checked.findings["names"]["observation"]
    owner = {
        "meta.helm.sh/release-name": "gpuledger",
        "meta.helm.sh/release-namespace": "gpuledger-system",
    }
    await cluster.patch(f"{ROLES}/gpuledger", {"metadata": {"annotations": owner}})
    assert (await ask(plane)).those(FAILED) == []
    assert (await ask(plane, ADMIN, "--namespace=elsewhere")).those(FAILED) == ["names"]
    await cluster.must("DELETE", f"{ROLES}/gpuledger")


async def test_definitions_of_another_owner_fail(plane: ControlPlane, cluster: Cluster) -> None:
    schema = {"openAPIV3Schema": {"type": "object"}}
    names = {"plural": "ledgerpolicies", "singular": "ledgerpolicy", "kind": "LedgerPolicy"}
    definition = {
        "metadata": {"name": "ledgerpolicies.gpuledger.io"},
        "spec": {
            "group": "gpuledger.io",
            "names": names,
            "scope": "Cluster",
            "versions": [{"name": "v1", "served": True, "storage": True, "schema": schema}],
        },
    }
    await cluster.must("POST", DEFINITIONS, definition)
    checked = await ask(plane)
    await cluster.must("DELETE", f"{DEFINITIONS}/ledgerpolicies.gpuledger.io")
    assert checked.those(FAILED) == ["definitions"]


async def test_another_installations_webhooks_are_named(
    plane: ControlPlane, cluster: Cluster
) -> None:
    path = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations"
    webhook = {
        "name": "pods.validate.gpuledger.io",
        "clientConfig": {"url": "https://old.example/admission/validate"},
        "admissionReviewVersions": ["v1"],
        "sideEffects": "None",
        "failurePolicy": "Ignore",
    }
    await cluster.must("POST", path, {"metadata": {"name": "old"}, "webhooks": [webhook]})
    checked = await ask(plane)
    await cluster.must("DELETE", f"{path}/old")
    assert (checked.status, checked.those("warning")) == (0, ["webhooks", "nodes"])
    assert "old" in checked.findings["webhooks"]["observation"]


async def test_an_untrusted_hami_is_named_with_the_settings(
    plane: ControlPlane, cluster: Cluster
) -> None:
    await cluster.must("POST", "/api/v1/namespaces", {"metadata": {"name": "gpu"}})
    rules = [{"apiGroups": [""], "resources": ["pods", "nodes"], "verbs": ["patch"]}]
    await cluster.must("POST", ROLES, {"metadata": {"name": "hami"}, "rules": rules})
    account = {"kind": "ServiceAccount", "namespace": "gpu", "name": "vgpu"}
    binding = {
        "metadata": {"name": "hami"},
        "roleRef": {"apiGroup": RBAC.partition("/")[0], "kind": "ClusterRole", "name": "hami"},
        "subjects": [account],
    }
    await cluster.must("POST", f"/apis/{RBAC}/clusterrolebindings", binding)
    await are_applied(cluster, "system:serviceaccount:gpu:vgpu", rules)
    labels = {"app.kubernetes.io/component": "hami-scheduler"}
    container = {"name": "scheduler", "image": "i", "command": ["--scheduler-name=vgpu-scheduler"]}
    deployment = {
        "metadata": {"name": "vgpu", "labels": labels},
        "spec": {
            "replicas": 0,
            "selector": {"matchLabels": labels},
            "template": {
                "metadata": {"labels": labels},
                "spec": {"serviceAccountName": "vgpu", "containers": [container]},
            },
        },
    }
    await cluster.must("POST", "/apis/apps/v1/namespaces/gpu/deployments", deployment)
    finding = (await ask(plane)).findings["hami"]
    assert finding["outcome"] == "warning"
    assert "trusted_identities system:serviceaccount:gpu:vgpu" in finding["remedy"]
    assert "card_schedulers vgpu-scheduler" in finding["remedy"]
    trusted = "--trusted-identities=system:serviceaccount:gpu:vgpu"
    finding = (await ask(plane, ADMIN, trusted, "--card-schedulers=vgpu-scheduler")).findings[
        "hami"
    ]
    assert finding["outcome"] == "ok"
