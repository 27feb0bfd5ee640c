"""What deploy/ holds, applied to a real API server as docs/install.md says.

The page's commands are typed here, with kubectl, to a control plane of its own. There are no nodes,
so nothing runs: what a replica would read, and what its service account may, is looked at instead.
"""

import copy
import json
import os
import re
import shutil
import subprocess
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from tests.e2e.cluster import Answer, Cluster, Manifest
from tests.e2e.conftest import _connected
from tests.e2e.controlplane import ADMIN, ControlPlane
from tests.e2e.polling import eventually
from tests.e2e.service import COMMAND

pytestmark = pytest.mark.e2e

ROOT: Final = Path(__file__).parents[2]
PAGE: Final = (ROOT / "docs" / "install.md").read_text()
COMMAND_SECONDS: Final = 60.0
EFFECTIVE_SECONDS: Final = 60.0

SPACE: Final = "gpuledger-system"
ACCOUNT: Final = f"system:serviceaccount:{SPACE}:gpuledger"
STRANGER: Final = f"system:serviceaccount:{SPACE}:default"
CRDS: Final = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
QUOTAS: Final = "/apis/gpuledger.io/v1alpha1/universeresourcequotas"
POLICIES: Final = "/apis/gpuledger.io/v1alpha1/ledgerpolicies"

READ: Final = ("get", "list", "watch")
RIGHTS: Final[dict[tuple[str, str, str], tuple[str, ...]]] = {
    ("", "pods", ""): (*READ, "patch"),
    ("", "resourcequotas", ""): (*READ, "create"),
    ("", "resourcequotas/status", ""): ("patch",),
    ("", "namespaces", ""): READ,
    **{
        ("apps", kind, ""): READ
        for kind in ("deployments", "replicasets", "statefulsets", "daemonsets")
    },
    **{("batch", kind, ""): READ for kind in ("jobs", "cronjobs")},
    ("jobset.x-k8s.io", "jobsets", ""): READ,
    ("leaderworkerset.x-k8s.io", "leaderworkersets", ""): READ,
    **{("kubeflow.org", kind, ""): READ for kind in ("mpijobs", "pytorchjobs", "tfjobs")},
    ("trainer.kubeflow.org", "trainjobs", ""): READ,
    **{("ray.io", kind, ""): READ for kind in ("rayclusters", "rayjobs", "rayservices")},
    ("gpuledger.io", "universeresourcequotas", ""): READ,
    ("gpuledger.io", "universeresourcequotas/status", ""): ("patch",),
    ("gpuledger.io", "ledgerpolicies", ""): READ,
    **{
        ("admissionregistration.k8s.io", f"{kind}webhookconfigurations", name): (verb,)
        for kind in ("mutating", "validating")
        for name, verb in (("", "create"), ("gpuledger", "patch"))
    },
    ("authentication.k8s.io", "tokenreviews", ""): ("create",),
    ("authorization.k8s.io", "subjectaccessreviews", ""): ("create",),
}
"""All that the service may do: (group, resource, the only name or any), and the verbs."""


class Kubectl:
    """kubectl against one control plane, in a folder of its own."""

    def __init__(self, assets: Path, plane: ControlPlane, folder: Path) -> None:
        self.folder = folder
        self._env = os.environ | {
            "KUBECONFIG": str(plane.kubeconfig(ADMIN)),
            "PATH": f"{assets}{os.pathsep}{COMMAND.parent}{os.pathsep}{os.environ['PATH']}",
        }

    def type(self, commands: str) -> str:
        """Run commands in bash; return what they print. Fails with what they complain about."""
        done = subprocess.run(
            ["bash", "-e", "-o", "pipefail", "-c", commands],
            cwd=self.folder,
            env=self._env,
            capture_output=True,
            text=True,
            timeout=COMMAND_SECONDS,
            check=False,
        )
        assert done.returncode == 0, f"{commands}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    def get(self, what: str) -> Manifest:
        """Return an object of the service's namespace."""
        found: Manifest = json.loads(self.type(f"kubectl -n {SPACE} get {what} -o json"))
        return found


def commands_of(heading: str) -> str:
    """Return the commands of a section of the page that need no running pod."""
    section = re.search(rf"^## {re.escape(heading)}\n(.*?)(?=^## |\Z)", PAGE, re.M | re.S)
    assert section is not None, f"the page has no section {heading!r}"
    blocks = re.findall(r"```sh\n(.*?)```", section[1], re.S)
    assert blocks, f"the section {heading!r} has no commands"
    return "\n".join(blocks)


@pytest.fixture(scope="module")
def plane(assets: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    running = ControlPlane(assets, tmp_path_factory.mktemp("deploy"))
    running.start()
    yield running
    running.stop()


@pytest.fixture(scope="module")
def kubectl(
    assets: Path, plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory
) -> Kubectl:
    """Install by the page, in a copy of what it uses, and return the kubectl that did."""
    if not (assets / "kubectl").is_file():
        pytest.skip(f"{assets} has no kubectl: nothing of deploy/ was applied")
    folder = tmp_path_factory.mktemp("checkout")
    shutil.copytree(ROOT / "deploy", folder / "deploy")
    typist = Kubectl(assets, plane, folder)
    for heading in ("Secrets", "The server's certificate", "The API server's certificate"):
        typist.type(commands_of(heading))
    typist.type("kubectl apply --warnings-as-errors -k deploy")
    return typist


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


def quota(**spec: Any) -> Manifest:
    """A quota over everything, but for what is given."""
    return {
        "apiVersion": "gpuledger.io/v1alpha1",
        "kind": "UniverseResourceQuota",
        "metadata": {"generateName": "u-"},
        "spec": {"hard": {"limits.nvidia.com/gpumem": "640000"}} | spec,
    }


def policy(**spec: Any) -> Manifest:
    """A policy for everything, but for what is given."""
    return {
        "apiVersion": "gpuledger.io/v1alpha1",
        "kind": "LedgerPolicy",
        "metadata": {"generateName": "p-"},
        "spec": spec,
    }


def expression(**given: Any) -> Manifest:
    return {"matchExpressions": [given]}


FULL_QUOTA: Final = quota(
    hard={"limits.nvidia.com/gpumem": "640k", "requests.nvidia.com/gpu": 64, "limits.cpu": "0"},
    regions=["eu-west"],
    clusters=["east-1", "west-1"],
    clusterSelector={"matchLabels": {"tier": "prod"}},
    namespaces=["team-a"],
    namespaceSelector=expression(key="team", operator="In", values=["a", "b"]),
    objectSelector=expression(key="app", operator="Exists"),
    scopes=["NotTerminating", "PriorityClass"],
    scopeSelector=expression(scopeName="PriorityClass", operator="In", values=["high"]),
)
FULL_POLICY: Final = policy(
    namespaces=["team-a"],
    namespaceSelector=expression(key="team", operator="DoesNotExist"),
    priority=-5,
    mode="warn",
    onExceeded="pending",
    surge="strict",
    podsOnly=True,
    exempt={"users": ["system:serviceaccount:ops:rescuer"], "groups": ["ops"]},
    defaultQuota={"name": "gpus", "hard": {"limits.nvidia.com/gpumem": "16000"}},
)


async def test_the_definitions_are_established(admin: Cluster) -> None:
    for name in ("universeresourcequotas", "ledgerpolicies"):
        found = await admin.must("GET", f"{CRDS}/{name}.gpuledger.io")
        status = {one["type"]: one["status"] for one in found["status"]["conditions"]}
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
        "surge": "opportunistic",
        "podsOnly": False,
    }


@pytest.mark.parametrize(
    ("path", "manifest", "because"),
    [
        (QUOTAS, quota(hard={}), "spec.hard"),
        (QUOTAS, quota(hard={"gpu": "1"}), "a key is limits.RESOURCE or requests.RESOURCE"),
        (QUOTAS, quota(hard={"limits.": "1"}), "a key is limits.RESOURCE or requests.RESOURCE"),
        (QUOTAS, quota(hard={"limits.nvidia.com/gpu": "-1"}), "spec.hard.limits.nvidia.com/gpu"),
        (QUOTAS, quota(hard={"limits.nvidia.com/gpu": -1}), "greater than or equal to 0"),
        (QUOTAS, quota(hard={"limits.nvidia.com/gpu": "many"}), "spec.hard"),
        (QUOTAS, quota(clusters=["East_1"]), "spec.clusters[0]"),
        (QUOTAS, quota(clusters=["a", "a"]), 'spec.clusters[1]: Duplicate value: "a"'),
        (QUOTAS, quota(namespaces=["-"]), "spec.namespaces[0]"),
        (
            QUOTAS,
            quota(namespaceSelector=expression(key="team", operator="In")),
            "In and NotIn need values",
        ),
        (
            QUOTAS,
            quota(objectSelector=expression(key="app", operator="Exists", values=["a"])),
            "Exists and DoesNotExist take none",
        ),
        (
            QUOTAS,
            quota(clusterSelector=expression(key="tier", operator="Is", values=["a"])),
            'supported values: "In", "NotIn", "Exists", "DoesNotExist"',
        ),
        (QUOTAS, quota(scopes=["Fast"]), 'Unsupported value: "Fast"'),
        (QUOTAS, quota(scopes=["Terminating", "NotTerminating"]), "exclude each other"),
        (QUOTAS, quota(scopes=["BestEffort", "NotBestEffort"]), "exclude each other"),
        (
            QUOTAS,
            quota(scopeSelector=expression(scopeName="PriorityClass", operator="In")),
            "In and NotIn need values",
        ),
        (
            QUOTAS,
            quota(scopeSelector=expression(scopeName="BestEffort", operator="DoesNotExist")),
            "only the scope PriorityClass has values",
        ),
        (QUOTAS, quota(cluster="east-1"), 'unknown field "spec.cluster"'),
        (POLICIES, policy(mode="dry-run"), 'supported values: "enforce", "warn", "off"'),
        (POLICIES, policy(onExceeded="evict"), 'supported values: "deny", "pending"'),
        (POLICIES, policy(surge="none"), '"opportunistic", "reserve", "strict"'),
        (POLICIES, policy(priority="high"), "spec.priority"),
        (POLICIES, policy(exempt={"groups": ["system:authenticated"]}), "everybody is in that"),
        (POLICIES, policy(defaultQuota={"name": "gpus"}), "spec.defaultQuota.hard: Required"),
        (POLICIES, policy(defaultQuota={"hard": {"pods": "x"}}), "spec.defaultQuota.hard.pods"),
        (POLICIES, policy(exempt={"labels": {"a": "b"}}), 'unknown field "spec.exempt.labels"'),
    ],
)
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
    }
    answer = await admin.patch(f"{QUOTAS}/shown/status?fieldValidation=Strict", {"status": status})
    assert answer.status == 200, answer.message
    assert answer.body["status"] == status
    header, row = kubectl.type("kubectl get uq shown").splitlines()
    assert header.split() == ["NAME", "HARD", "USED", "AGE"]
    assert '{"limits.nvidia.com/gpumem":"640000"}' in row
    assert '{"limits.nvidia.com/gpumem":"8000"}' in row


async def test_a_policy_is_shown_with_what_it_does(admin: Cluster, kubectl: Kubectl) -> None:
    await admin.must("POST", POLICIES, policy(mode="warn") | {"metadata": {"name": "shown"}})
    header, row = kubectl.type("kubectl get lp shown").splitlines()
    assert header.split() == ["NAME", "MODE", "EXCEEDED", "SURGE", "PODS-ONLY", "PRIORITY", "AGE"]
    assert row.split()[:6] == ["shown", "warn", "deny", "opportunistic", "false", "0"]


def test_applying_again_changes_nothing(kubectl: Kubectl) -> None:
    assert kubectl.type("kubectl diff -k deploy") == ""


def test_every_mounted_key_is_made_by_the_page(kubectl: Kubectl) -> None:
    for workload in ("deployment/gpuledger", "statefulset/gpuledger-nats"):
        spec = kubectl.get(workload)["spec"]["template"]["spec"]
        for volume in spec["volumes"]:
            if "secret" in volume:
                kubectl.get(f"secret/{volume['secret']['secretName']}")
            if "configMap" in volume:
                kubectl.get(f"configmap/{volume['configMap']['name']}")
        for variable in spec["containers"][0]["env"]:
            key = variable.get("valueFrom", {}).get("secretKeyRef")
            assert key is None or key["key"] in kubectl.get(f"secret/{key['name']}")["data"]


@pytest.mark.parametrize("path", ["tls_cert", "tls_key", "stamp_key_file", "client_ca"])
def test_every_file_of_the_settings_is_mounted(kubectl: Kubectl, path: str) -> None:
    spec = kubectl.get("deployment/gpuledger")["spec"]["template"]["spec"]
    settings = kubectl.type("gpuledger serve --config deploy/gpuledger.toml --print-config")
    found = re.search(rf'^{path}\s.*?"(.*?)"', settings, re.M)
    assert found is not None, settings
    folder, name = os.path.split(found[1])
    [mount] = [one for one in spec["containers"][0]["volumeMounts"] if one["mountPath"] == folder]
    [volume] = [one for one in spec["volumes"] if one["name"] == mount["name"]]
    if "secret" in volume:
        assert name in kubectl.get(f"secret/{volume['secret']['secretName']}")["data"]
    else:
        assert name in kubectl.get(f"configmap/{volume['configMap']['name']}")["data"]


@pytest.mark.parametrize("workload", ["deployment/gpuledger", "statefulset/gpuledger-nats"])
async def test_the_pods_meet_the_restricted_standard(
    admin: Cluster, kubectl: Kubectl, workload: str
) -> None:
    template = copy.deepcopy(kubectl.get(workload)["spec"]["template"])
    for claim in kubectl.get(workload)["spec"].get("volumeClaimTemplates", ()):
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


async def rules_of(cluster: Cluster, user: str) -> dict[tuple[str, str, str], set[str]]:
    """Return what a service account may do in the service's namespace, cluster roles included."""
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectRulesReview",
        "spec": {"namespace": SPACE},
    }
    found = await cluster.must(
        "POST",
        "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews",
        review,
        headers={"Impersonate-User": user},
    )
    rules: dict[tuple[str, str, str], set[str]] = {}
    for rule in found["status"]["resourceRules"]:
        for group in rule["apiGroups"]:
            for resource in rule["resources"]:
                for name in rule.get("resourceNames", [""]):
                    rules.setdefault((group, resource, name), set()).update(rule["verbs"])
    return rules


async def test_the_service_may_do_what_it_does_and_nothing_else(admin: Cluster) -> None:
    everybody = await rules_of(admin, STRANGER)
    service = await rules_of(admin, ACCOUNT)
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


async def test_webhooks_are_registered_as_the_page_says(admin: Cluster, kubectl: Kubectl) -> None:
    command = commands_of("Register the webhooks")
    inside = "kubectl -n gpuledger-system exec deploy/gpuledger -- "
    assert inside in command
    command = command.replace(inside, "GPULEDGER_CONFIG=deploy/gpuledger.toml ")
    kubectl.type(command.replace("/etc/gpuledger/tls/ca.crt", "ca.crt"))
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
    kubectl.type(commands_of("Uninstall").replace("delete -k", "delete --wait=false -k"))

    async def left() -> list[str]:
        paths = (
            f"{CRDS}/universeresourcequotas.gpuledger.io",
            f"/api/v1/namespaces/{SPACE}",
            "/apis/rbac.authorization.k8s.io/v1/clusterroles/gpuledger",
            "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations/gpuledger",
        )
        return [path for path in paths if (await admin.ask("GET", path)).status != 404]

    await eventually(
        left, lambda paths: not paths, within=EFFECTIVE_SECONDS, what="everything is gone"
    )
