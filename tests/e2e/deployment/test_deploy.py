"""The manifests of deploy/, applied to a real API server as in docs/how-to/kustomize.md.

The page's commands are typed here, with kubectl, to a control plane of its own. There are no nodes,
so nothing runs: what a replica would read, and what its service account may, is looked at instead.
"""

import copy
import os
import re
import shutil
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.e2e.conftest import _connected
from tests.e2e.harness.cluster import Answer, Cluster, Manifest
from tests.e2e.harness.controlplane import ADMIN, ControlPlane
from tests.e2e.harness.kubectl import Kubectl, commands_of
from tests.e2e.harness.polling import eventually
from tests.e2e.objects.definitions import (
    FULL_POLICY,
    FULL_QUOTA,
    MISTAKES,
    POLICIES,
    QUOTAS,
    policy,
    quota,
)
from tests.e2e.objects.rights import RIGHTS, rights_of

pytestmark = pytest.mark.e2e

ROOT: Final = Path(__file__).parents[3]
PAGE: Final = (ROOT / "docs" / "how-to" / "kustomize.md").read_text()
SCHEDULING_PAGE: Final = (ROOT / "docs" / "how-to" / "scheduling.md").read_text()
NODE_PAGE: Final = (ROOT / "docs" / "how-to" / "node.md").read_text()
EFFECTIVE_SECONDS: Final = 60.0
RUNTIME_CLASS: Final = """
apiVersion: node.k8s.io/v1
kind: RuntimeClass
metadata: {name: nvidia}
handler: nvidia"""

SPACE: Final = "gpuledger-system"
NODES: Final = "gpuledger-nodes"
ACCOUNT: Final = f"system:serviceaccount:{SPACE}:gpuledger"
STRANGER: Final = f"system:serviceaccount:{SPACE}:default"
CRDS: Final = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


@pytest.fixture(scope="module")
def plane(assets: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    running = ControlPlane(assets, tmp_path_factory.mktemp("deploy"))
    running.start()
    yield running
    running.stop()


@pytest.fixture(scope="module")
def kubectl(assets: Path, plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Kubectl:
    """Install by the page, in a copy of what it uses, and return the kubectl that did."""
    folder = tmp_path_factory.mktemp("checkout")
    shutil.copytree(ROOT / "deploy", folder / "deploy")
    typist = Kubectl(assets, plane.kubeconfig(ADMIN), folder)
    for heading in ("Secrets", "The server's certificate", "The API server's certificate"):
        typist.type("\n".join(commands_of(PAGE, heading)))
    apply = commands_of(PAGE, "Apply")[0].splitlines()[0]
    typist.type(f"{apply} --warnings-as-errors")
    return typist


@pytest.fixture(scope="module")
def agents(kubectl: Kubectl) -> Kubectl:
    """Install agents, too, by their page; without NVIDIA's operator, which brings the class."""
    kubectl.type(f"kubectl create -f - <<'END'\n{RUNTIME_CLASS}\nEND")
    [install] = commands_of(NODE_PAGE, "Install it")
    kubectl.type(install)
    return kubectl


@pytest.fixture
async def admin(plane: ControlPlane, kubectl: Kubectl) -> AsyncIterator[Cluster]:
    """Return the API server, with everything installed and the definitions served."""
    async with _connected(plane) as cluster:
        await eventually(
            lambda: cluster.ask("GET", QUOTAS),
            lambda answer: answer.status == 200,
            within=EFFECTIVE_SECONDS,
            what="the definitions are served",
        )
        yield cluster


async def test_the_definitions_are_established(admin: Cluster) -> None:
    for name in ("universeresourcequotas", "ledgerpolicies"):
        definition = await admin.must("GET", f"{CRDS}/{name}.gpuledger.io")
        status = {
            condition["type"]: condition["status"]
            for condition in definition["status"]["conditions"]
        }
        assert status == {"NamesAccepted": "True", "Established": "True"}


@pytest.mark.parametrize(
    ("path", "manifest"),
    [(QUOTAS, quota()), (QUOTAS, FULL_QUOTA), (POLICIES, policy()), (POLICIES, FULL_POLICY)],
)
async def test_what_is_meant_is_accepted_and_kept(
    admin: Cluster, path: str, manifest: Manifest
) -> None:
    query = f"{path}?dryRun=All&fieldValidation=Strict"
    stored = await admin.must("POST", query, manifest)
    assert stored["spec"] == stored["spec"] | manifest["spec"]


async def test_an_empty_policy_is_the_strict_one(admin: Cluster) -> None:
    stored = await admin.must("POST", f"{POLICIES}?dryRun=All", policy())
    assert stored["spec"] == {
        "priority": 0,
        "mode": "enforce",
        "onExceeded": "deny",
        "foreignHolders": "namespace",
        "surge": "opportunistic",
        "elastic": "current",
        "missingClaimTemplates": "defer",
        "unmappedDeviceClasses": "deny",
        "podsOnly": False,
    }


@pytest.mark.parametrize(("path", "manifest", "because"), MISTAKES)
async def test_a_mistake_is_refused_and_named(
    admin: Cluster, path: str, manifest: Manifest, because: str
) -> None:
    answer = await admin.ask("POST", f"{path}?dryRun=All&fieldValidation=Strict", manifest)
    assert answer.status in (400, 422), answer.body
    assert because in answer.message


async def test_a_status_is_kept_and_shown(admin: Cluster, kubectl: Kubectl) -> None:
    manifest = quota() | {"metadata": {"name": "shown"}}
    await admin.must("POST", QUOTAS, manifest)
    used = {"limits.nvidia.com/gpumem": "8000"}
    status = {
        "hard": manifest["spec"]["hard"],
        "used": used,
        "clusters": [
            {"name": "east-1", "used": used, "namespaces": [{"name": "team-a", "used": used}]}
        ],
        "summary": "gpumem: 8000/640000",
        "conditions": [
            {
                "type": "Ready",
                "status": "True",
                "reason": "Counted",
                "message": "",
                "lastTransitionTime": "2026-01-31T12:00:00Z",
            }
        ],
    }
    answer = await admin.patch(f"{QUOTAS}/shown/status?fieldValidation=Strict", {"status": status})
    assert answer.status == 200, answer.message
    assert answer.body["status"] == status
    header, row = kubectl.type("kubectl get uq shown").splitlines()
    assert header.split() == ["NAME", "READY", "REASON", "USED/LIMIT", "AGE"]
    assert row.split()[:5] == ["shown", "True", "Counted", "gpumem:", "8000/640000"]


async def test_a_policy_is_shown_with_what_it_does(admin: Cluster, kubectl: Kubectl) -> None:
    await admin.must("POST", POLICIES, policy(mode="warn") | {"metadata": {"name": "shown"}})
    header, row = kubectl.type("kubectl get lp shown -o wide").splitlines()
    columns = ["READY", "REASON", "NAMESPACES", "MODE", "EXCEEDED", "PRIORITY"]
    assert header.split() == ["NAME", *columns, "SURGE", "PODS-ONLY", "BY-NAME", "AGE"]
    # No service runs here, so nothing has written the status.
    assert row.split()[:6] == ["shown", "warn", "deny", "0", "opportunistic", "false"]


def test_no_key_that_the_page_makes_is_left_in_the_checkout(kubectl: Kubectl) -> None:
    keys = kubectl.home / "gpuledger-keys"
    assert keys.stat().st_mode & 0o077 == 0
    assert {"ca.key", "tls.key", "client-ca.key", "client.key"} <= {p.name for p in keys.iterdir()}
    assert {path.name for path in kubectl.folder.iterdir()} == {"deploy", "home"}


def test_the_scheduler_is_applied_without_a_word_of_warning(kubectl: Kubectl) -> None:
    command = "kubectl apply -k deploy/scheduler"
    assert command in SCHEDULING_PAGE
    printed = kubectl.type(f"{command} --warnings-as-errors").splitlines()
    assert printed
    assert {line.rpartition(" ")[2] for line in printed} == {"created"}
    assert "Warning" not in kubectl.type(f"{command} --warnings-as-errors")


def test_applying_again_changes_nothing(kubectl: Kubectl) -> None:
    assert kubectl.type("kubectl diff -k deploy") == ""


def test_every_mounted_key_is_made_by_the_page(kubectl: Kubectl) -> None:
    for workload in ("deployment/gpuledger", "statefulset/gpuledger-nats"):
        spec = kubectl.get(SPACE, workload)["spec"]["template"]["spec"]
        for volume in spec["volumes"]:
            if "secret" in volume:
                kubectl.get(SPACE, f"secret/{volume['secret']['secretName']}")
            if "configMap" in volume:
                kubectl.get(SPACE, f"configmap/{volume['configMap']['name']}")
        for variable in spec["containers"][0]["env"]:
            key = variable.get("valueFrom", {}).get("secretKeyRef")
            assert key is None or key["key"] in kubectl.get(SPACE, f"secret/{key['name']}")["data"]


@pytest.mark.parametrize("path", ["tls_cert", "tls_key", "client_ca"])
def test_every_file_of_the_settings_is_mounted(kubectl: Kubectl, path: str) -> None:
    spec = kubectl.get(SPACE, "deployment/gpuledger")["spec"]["template"]["spec"]
    settings = kubectl.type("gpuledger serve --config deploy/gpuledger.toml --print-config")
    match = re.search(rf'^{path}\s.*?"(.*?)"', settings, re.MULTILINE)
    assert match is not None, settings
    folder, name = os.path.split(match[1])
    [mount] = [
        candidate
        for candidate in spec["containers"][0]["volumeMounts"]
        if candidate["mountPath"] == folder
    ]
    [volume] = [candidate for candidate in spec["volumes"] if candidate["name"] == mount["name"]]
    if "secret" in volume:
        assert name in kubectl.get(SPACE, f"secret/{volume['secret']['secretName']}")["data"]
    else:
        assert name in kubectl.get(SPACE, f"configmap/{volume['configMap']['name']}")["data"]


@pytest.mark.parametrize("workload", ["deployment/gpuledger", "statefulset/gpuledger-nats"])
async def test_the_pods_meet_the_restricted_standard(
    admin: Cluster, kubectl: Kubectl, workload: str
) -> None:
    template = copy.deepcopy(kubectl.get(SPACE, workload)["spec"]["template"])
    for claim in kubectl.get(SPACE, workload)["spec"].get("volumeClaimTemplates", ()):
        source = {"persistentVolumeClaim": {"claimName": claim["metadata"]["name"]}}
        template["spec"]["volumes"].append({"name": claim["metadata"]["name"], **source})
    template["metadata"] = {"generateName": "p-", "labels": template["metadata"]["labels"]}
    manifest = {"apiVersion": "v1", "kind": "Pod", **template}

    async def ask() -> Answer:
        return await admin.ask("POST", f"/api/v1/namespaces/{SPACE}/pods?dryRun=All", manifest)

    # A new ResourceQuota refuses until the controller manager has looked at it.
    await eventually(
        ask,
        lambda answer: answer.status == 201,
        within=EFFECTIVE_SECONDS,
        what=f"a pod of {workload} is admitted",
    )
    manifest["spec"]["hostNetwork"] = True
    refused = await ask()
    assert refused.status == 403
    assert "restricted" in refused.message


async def test_the_agents_pods_are_admitted(admin: Cluster, agents: Kubectl) -> None:
    template = copy.deepcopy(agents.get(NODES, "daemonset/gpuledger-agent")["spec"]["template"])
    template["metadata"] = {"generateName": "p-", "labels": template["metadata"]["labels"]}
    manifest = {"apiVersion": "v1", "kind": "Pod", **template}
    await eventually(
        lambda: admin.ask("POST", f"/api/v1/namespaces/{NODES}/pods?dryRun=All", manifest),
        lambda answer: answer.status == 201,
        within=EFFECTIVE_SECONDS,
        what="a pod of the agent is admitted",
    )


def test_the_agents_password_is_that_of_the_log(agents: Kubectl) -> None:
    password = agents.get(SPACE, "secret/gpuledger-nats")["data"]["agent-password"]
    assert agents.get(NODES, "secret/gpuledger-agent")["data"] == {"password": password}


async def test_the_service_may_do_what_it_does_and_nothing_else(admin: Cluster) -> None:
    everybody = await rights_of(admin, STRANGER, SPACE)
    service = await rights_of(admin, ACCOUNT, SPACE)
    own = {
        key: verbs - everybody.get(key, set())
        for key, verbs in service.items()
        if verbs - everybody.get(key, set())
    }
    assert own == {key: set(verbs) for key, verbs in RIGHTS.items()}


@pytest.mark.parametrize(
    "path",
    ["/api/v1/pods", "/apis/apps/v1/deployments", "/api/v1/namespaces/kube-system", QUOTAS],
)
async def test_the_service_may_read_everywhere(admin: Cluster, path: str) -> None:
    answer = await admin.ask("GET", path, headers={"Impersonate-User": ACCOUNT})
    assert answer.status == 200, answer.message


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/api/v1/secrets"),
        ("GET", f"/api/v1/namespaces/{SPACE}/secrets/gpuledger-tls"),
        ("DELETE", "/api/v1/namespaces/default/pods/p"),
        ("DELETE", "/api/v1/namespaces/default/resourcequotas/q"),
        ("DELETE", f"{QUOTAS}/q"),
        ("DELETE", f"{POLICIES}/p"),
        ("DELETE", "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations/other"),
    ],
)
async def test_the_service_may_not(admin: Cluster, method: str, path: str) -> None:
    answer = await admin.ask(method, path, headers={"Impersonate-User": ACCOUNT})
    assert answer.status == 403, answer.body


async def test_webhooks_are_registered_as_on_the_page(admin: Cluster, kubectl: Kubectl) -> None:
    command, network = commands_of(PAGE, "Register the webhooks")
    kubectl.type(network.splitlines()[0])
    inside = "kubectl -n gpuledger-system exec deploy/gpuledger -- \\\n"
    assert inside in command
    command = command.replace(inside, "GPULEDGER_CONFIG=deploy/gpuledger.toml ")
    kubectl.type(command.replace("/etc/gpuledger/tls/ca.crt", "~/gpuledger-keys/ca.crt"))
    path = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations/gpuledger"
    for webhook in (await admin.must("GET", path))["webhooks"]:
        service = webhook["clientConfig"]["service"]
        assert (service["namespace"], service["name"], service["port"]) == (
            SPACE,
            "gpuledger",
            443,
        )
        assert webhook["clientConfig"]["caBundle"]


async def test_what_is_uninstalled_leaves_nothing(admin: Cluster, kubectl: Kubectl) -> None:
    [commands] = commands_of(PAGE, "Uninstall")
    kubectl.type(commands.replace(" -k", " --wait=false -k"))

    async def left() -> list[str]:
        paths = (
            f"{CRDS}/universeresourcequotas.gpuledger.io",
            f"/api/v1/namespaces/{SPACE}",
            f"/api/v1/namespaces/{NODES}",
            "/apis/rbac.authorization.k8s.io/v1/clusterroles/gpuledger",
            "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations/gpuledger",
            "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies/gpuledger-agent-node",
        )
        return [path for path in paths if (await admin.ask("GET", path)).status != 404]

    await eventually(
        left, lambda paths: not paths, within=EFFECTIVE_SECONDS, what="everything is gone"
    )
