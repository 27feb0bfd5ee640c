"""The chart's Job before an install, on a real API server: its command, as its account.

The account has exactly the rights that the chart renders, and the command the rendered arguments
and settings. There are no nodes, so no pod runs.
"""

import copy
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from tests.e2e.conftest import _connected
from tests.e2e.harness import own_control_plane
from tests.e2e.harness.cluster import Cluster
from tests.e2e.harness.controlplane import ADMIN, ControlPlane
from tests.e2e.harness.polling import eventually
from tests.e2e.operation.support.install_check import FAILED, NOT_ASKED, CheckedInstall, check
from tools.manifests.helm_chart import render

pytestmark = pytest.mark.e2e

ROOT: Final = Path(__file__).parents[3]
SPACE: Final = "gpu"
JOB: Final = "jobs/beforeinstall.yaml"
RBAC: Final = "/apis/rbac.authorization.k8s.io/v1"
LOCAL: Final = f"{RBAC}/namespaces/{SPACE}"
ACCOUNTS: Final = f"/api/v1/namespaces/{SPACE}/serviceaccounts"
CLASSES: Final = "/apis/storage.k8s.io/v1/storageclasses"
WEBHOOKS: Final = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations"
PATHS: Final = {
    "ServiceAccount": ACCOUNTS,
    "ClusterRole": f"{RBAC}/clusterroles",
    "ClusterRoleBinding": f"{RBAC}/clusterrolebindings",
    "Role": f"{LOCAL}/roles",
    "RoleBinding": f"{LOCAL}/rolebindings",
}
VALUES: Final = ("cluster=east-1", "check.beforeInstall=true")
TRUSTED: Final = "settings.trusted_identities={system:serviceaccount:hami:vgpu}"
EXTERNAL: Final = (
    "nats.mode=external",
    "nats.servers={nats://nats.example:4222}",
    "nats.auth.existingSecret=login",
)

Manifest = dict[str, Any]


def objects(*sets: str, release: str = "east") -> list[Manifest]:
    """Return the objects of the Job before an install."""
    release_objects = render(ROOT, (), (*VALUES, *sets), release=release, namespace=SPACE)
    return [each.manifest for each in release_objects if each.template == JOB]


def only(manifests: list[Manifest], kind: str) -> Manifest:
    [manifest] = [each for each in manifests if each["kind"] == kind]
    return manifest


class Hook:
    """Runs the command of the rendered Job with a token of the rendered account."""

    def __init__(self, plane: ControlPlane, admin: Cluster, folder: Path) -> None:
        self.plane, self.admin, self.folder = plane, admin, folder

    async def run(
        self, monkeypatch: pytest.MonkeyPatch, *sets: str, without: str = ""
    ) -> CheckedInstall:
        """Make the account and run the command; `without` is a resource that no role names."""
        manifests = objects(*sets)
        for manifest in manifests:
            if manifest["kind"] in PATHS:
                await self._make(manifest, without)
        config = self.folder / "gpuledger.toml"
        config.write_text(only(manifests, "ConfigMap")["data"]["gpuledger.toml"])
        monkeypatch.setenv("GPULEDGER_CONFIG", str(config))
        [container] = only(manifests, "Job")["spec"]["template"]["spec"]["containers"]
        _, *options = container["args"]
        name = only(manifests, "ServiceAccount")["metadata"]["name"]
        return await check(await self._kubeconfig(name), *options)

    async def _make(self, manifest: Manifest, without: str) -> None:
        made = copy.deepcopy(manifest)
        for rule in made.get("rules", []):
            rule["resources"] = [name for name in rule["resources"] if name != without]
        made["rules"] = [rule for rule in made.get("rules", []) if rule["resources"]]
        if not made["rules"]:
            del made["rules"]
        path = PATHS[manifest["kind"]]
        await self.admin.ask("DELETE", f"{path}/{manifest['metadata']['name']}")
        await self.admin.must("POST", path, made)

    async def _kubeconfig(self, account: str) -> Path:
        request = {"spec": {"audiences": ["https://kubernetes.default.svc"]}}
        token = (await self.admin.must("POST", f"{ACCOUNTS}/{account}/token", request))["status"]
        config = yaml.safe_load(self.plane.kubeconfig(ADMIN).read_text())
        config["users"][0]["user"] = {"token": token["token"]}
        path = self.folder / "kubeconfig"
        path.write_text(yaml.safe_dump(config))
        return path


@pytest.fixture(scope="module")
def plane(assets: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    with own_control_plane.control_plane(assets, tmp_path_factory.mktemp("hook")) as running:
        yield running


@pytest.fixture
async def admin(plane: ControlPlane) -> AsyncIterator[Cluster]:
    """Make the namespace of the release, and a default StorageClass."""
    default = {"storageclass.kubernetes.io/is-default-class": "true"}
    standard = {
        "metadata": {"name": "standard", "annotations": default},
        "provisioner": "kubernetes.io/no-provisioner",
    }
    async with _connected(plane) as cluster:
        await cluster.ask("POST", "/api/v1/namespaces", {"metadata": {"name": SPACE}})
        await cluster.ask("POST", CLASSES, standard)
        yield cluster


@pytest.fixture
def hook(plane: ControlPlane, admin: Cluster, tmp_path: Path) -> Hook:
    return Hook(plane, admin, tmp_path)


def webhook(namespace: str) -> Manifest:
    """Return an entry that calls the Service of release east in a namespace."""
    service = {"namespace": namespace, "name": "east-gpuledger", "path": "/admission/validate"}
    return {
        "name": "pods.validate.gpuledger.io",
        "clientConfig": {"service": service},
        "admissionReviewVersions": ["v1"],
        "sideEffects": "None",
        "failurePolicy": "Ignore",
    }


async def test_nothing_stops_an_install_on_a_bare_cluster(
    hook: Hook, monkeypatch: pytest.MonkeyPatch
) -> None:
    checked = await hook.run(monkeypatch)
    assert (checked.status, checked.those(FAILED), checked.those(NOT_ASKED)) == (0, [], [])
    assert set(checked.findings) == {
        "api-server",
        "rights",
        "webhooks",
        "storage",
        "hami",
        "nodes",
    }


@pytest.mark.parametrize("missing", ["storageclasses", "nodes", "validatingwebhookconfigurations"])
async def test_a_missing_right_of_the_account_fails(
    hook: Hook, monkeypatch: pytest.MonkeyPatch, missing: str
) -> None:
    checked = await hook.run(monkeypatch, without=missing)
    assert (checked.status, checked.those(FAILED)) == (1, ["rights"])
    assert missing in checked.findings["rights"]["observation"]


async def test_a_cluster_without_storage_classes_fails(
    hook: Hook, admin: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    await admin.must("DELETE", f"{CLASSES}/standard")
    checked = await hook.run(monkeypatch)
    assert (checked.status, checked.those(FAILED)) == (1, ["storage"])
    assert (await hook.run(monkeypatch, *EXTERNAL)).status == 0


async def test_an_upgrade_passes(
    hook: Hook, admin: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The service has made its webhooks, its log has a volume, and another release is there."""
    await admin.must("DELETE", f"{CLASSES}/standard")
    for name in ("east-gpuledger", "west-gpuledger"):
        made = {"metadata": {"name": name}, "webhooks": [webhook(SPACE)]}
        await admin.must("POST", WEBHOOKS, made)
    claim = {
        "metadata": {"name": "data-east-gpuledger-nats-0"},
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": "1Gi"}},
            "storageClassName": "",
        },
    }
    claims = f"/api/v1/namespaces/{SPACE}/persistentvolumeclaims"
    await admin.must("POST", claims, claim)
    checked = await hook.run(monkeypatch)
    await admin.must("DELETE", f"{WEBHOOKS}/west-gpuledger")
    await admin.must("DELETE", f"{WEBHOOKS}/east-gpuledger")
    await admin.must("DELETE", f"{claims}/data-east-gpuledger-nats-0")
    assert (checked.status, checked.those(FAILED), checked.those(NOT_ASKED)) == (0, [], [])
    assert checked.those("warning") == ["webhooks", "nodes"]


async def test_webhooks_of_another_namespace_fail(
    hook: Hook, admin: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A release of this name in another namespace has the webhooks that the service would write."""
    made = {"metadata": {"name": "east-gpuledger"}, "webhooks": [webhook("elsewhere")]}
    await admin.must("POST", WEBHOOKS, made)
    checked = await hook.run(monkeypatch)
    await admin.must("DELETE", f"{WEBHOOKS}/east-gpuledger")
    assert (checked.status, checked.those(FAILED)) == (1, ["webhooks"])
    assert "--namespace elsewhere" in checked.findings["webhooks"]["remedy"]


async def test_an_untrusted_hami_is_named_and_a_trusted_one_is_not(
    hook: Hook, admin: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    await admin.must("POST", "/api/v1/namespaces", {"metadata": {"name": "hami"}})
    rules = [{"apiGroups": [""], "resources": ["pods", "nodes"], "verbs": ["patch"]}]
    role = {"metadata": {"name": "hami"}, "rules": rules}
    await admin.must("POST", PATHS["ClusterRole"], role)
    binding = {
        "metadata": {"name": "hami"},
        "roleRef": {"apiGroup": RBAC.split("/")[2], "kind": "ClusterRole", "name": "hami"},
        "subjects": [{"kind": "ServiceAccount", "namespace": "hami", "name": "vgpu"}],
    }
    await admin.must("POST", PATHS["ClusterRoleBinding"], binding)
    labels = {"app.kubernetes.io/component": "hami-device-plugin"}
    pod = {"serviceAccountName": "vgpu", "containers": [{"name": "plugin", "image": "i"}]}
    plugin = {
        "metadata": {"name": "vgpu", "labels": labels},
        "spec": {
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": pod},
        },
    }
    await admin.must("POST", "/apis/apps/v1/namespaces/hami/daemonsets", plugin)
    checked = await eventually(
        lambda: hook.run(monkeypatch),
        lambda seen: seen.findings["hami"]["outcome"] == "warning",
        within=60.0,
        what="the API server knows the rights of HAMi",
    )
    assert checked.status == 0
    assert (
        "trusted_identities system:serviceaccount:hami:vgpu" in checked.findings["hami"]["remedy"]
    )
    assert (await hook.run(monkeypatch, TRUSTED)).findings["hami"]["outcome"] == "ok"
