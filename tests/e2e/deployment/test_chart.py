"""The chart, installed on a real API server: two releases, an upgrade, the notes, an uninstall.

There are no nodes, so nothing runs; tests/e2e/install runs it.
"""

import shlex
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.e2e.harness.controlplane import ADMIN, ControlPlane
from tests.e2e.harness.kubectl import Kubectl
from tools.manifests.helm_chart import CHART

pytestmark = pytest.mark.e2e

FOLDER: Final = str(Path(__file__).parents[3] / CHART)
HELM_SECONDS: Final = 120.0
PARTS: Final = "scheduler.enabled=true,agent.enabled=true,backup.enabled=true"
CLUSTER_SCOPED: Final = (
    "clusterroles,clusterrolebindings,validatingadmissionpolicies,"
    "validatingadmissionpolicybindings,namespaces"
)

Helm = Callable[..., str]


@pytest.fixture(scope="module")
def kubectl(assets: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kubectl]:
    running = ControlPlane(assets, tmp_path_factory.mktemp("chart"))
    running.start()
    yield Kubectl(assets, running.kubeconfig(ADMIN), tmp_path_factory.mktemp("home"))
    running.stop()


@pytest.fixture(scope="module")
def helm(kubectl: Kubectl) -> Helm:
    """Return a function that types a helm command and returns its output in one line."""

    def run(*arguments: str, attempt: bool = False) -> str:
        command = shlex.join(["helm", *arguments])
        status, output = kubectl.attempt(command, within=HELM_SECONDS)
        assert attempt or status == 0, output
        return " ".join(output.split())

    return run


def install(helm: Helm, release: str, *sets: str, verb: str = "install", **options: bool) -> str:
    """Install or upgrade a release in a namespace of its own."""
    given = [f"--set={item}" for item in (f"cluster={release}-1", *sets)]
    namespace = (f"--namespace={release}", *(["--create-namespace"] if verb == "install" else []))
    return helm(verb, release, FOLDER, *namespace, *given, **options)


def password(kubectl: Kubectl, secret: str, key: str = "password") -> str:
    namespace, _, name = secret.partition("/")
    data = kubectl.get(namespace, f"secret/{name}")["data"]
    return str(data[key])


@pytest.fixture(scope="module")
def notes(helm: Helm) -> str:
    """Install the release east, with all parts, and return its notes."""
    return install(helm, "east", PARTS)


def test_the_notes_name_the_release_and_what_comes_next(notes: str) -> None:
    for command in (
        "helm -n east test east",
        "kubectl -n east exec deploy/east-gpuledger -- gpuledger usage",
        "kubectl label node NODE gpuledger.io/agent=on",
        "schedulerName: east-gpuledger-scheduler",
        "helm -n east uninstall east",
    ):
        assert command in notes
    assert "neither counted nor denied: kube-system, east." in notes
    assert "production is false" in notes
    assert "nothing is counted or denied" not in notes


def test_an_upgrade_keeps_passwords_and_certificates(
    helm: Helm, kubectl: Kubectl, notes: str
) -> None:
    before = password(kubectl, "east/east-gpuledger-nats")
    shared = password(kubectl, "east/east-gpuledger-nats", "agent-password")
    assert password(kubectl, "east-gpuledger-nodes/east-gpuledger-agent") == shared
    written = '{"data": {"tls.crt": "eA==", "ca.crt": "eA=="}}'
    kubectl.type(f"kubectl -n east patch secret east-gpuledger-tls -p '{written}'")
    shown = install(helm, "east", PARTS, "webhook.register=false", verb="upgrade")
    assert "nothing is counted or denied" in shown
    assert "gpuledger webhook print --service east-gpuledger | kubectl apply" in shown
    assert password(kubectl, "east/east-gpuledger-nats") == before
    assert password(kubectl, "east-gpuledger-nodes/east-gpuledger-agent") == shared
    assert set(kubectl.get("east", "secret/east-gpuledger-tls")["data"]) == {"tls.crt", "ca.crt"}


def test_a_second_release_leaves_the_definitions_with_the_first(
    helm: Helm, kubectl: Kubectl, notes: str
) -> None:
    shown = install(helm, "west")
    assert "belongs to another release and was left alone" in shown
    owner = kubectl.get("west", "crd/ledgerpolicies.gpuledger.io")["metadata"]["annotations"]
    assert owner["meta.helm.sh/release-name"] == "east"
    helm("uninstall", "west", "--namespace=west", "--no-hooks")
    left = kubectl.type(f"kubectl get {CLUSTER_SCOPED} -o name")
    assert "west-gpuledger" not in left
    assert "east-gpuledger-own-pods" in left


def test_without_a_helm_test_the_notes_have_the_options_of_the_check(helm: Helm) -> None:
    given = "--set=cluster=north-1,agent.namespace=cards"
    shown = helm("install", "north", FOLDER, "--namespace=default", given, "--dry-run=server")
    assert "--agent-namespace cards" in shown
    assert "--probe-namespace NAMESPACE" in shown
    assert "helm -n default test" not in shown


def test_without_a_cluster_nothing_is_installed(helm: Helm, kubectl: Kubectl) -> None:
    shown = helm("install", "north", FOLDER, "--namespace=default", attempt=True)
    assert "cluster is empty: set the permanent name" in shown
    assert "north" not in kubectl.type("kubectl get all,secrets -n default -o name")


def test_an_upgrade_to_another_number_of_log_servers_is_refused(helm: Helm, notes: str) -> None:
    shown = install(helm, "east", PARTS, "nats.mode=cluster", verb="upgrade", attempt=True)
    assert "nats.mode: the log of this release has 1 server(s), and cluster would have 3" in shown


def test_a_secret_of_the_release_is_refused_as_an_existing_one(helm: Helm, notes: str) -> None:
    given = "certificates.existingSecret=east-gpuledger-tls"
    shown = install(helm, "east", PARTS, given, verb="upgrade", attempt=True)
    assert "certificates.existingSecret: the Secret east-gpuledger-tls belongs to" in shown


@pytest.mark.parametrize(
    ("given", "refusal"),
    [
        ("fullnameOverride=other", "named east-gpuledger, and would be named other"),
        ("agent.createNamespace=false", "this release made the namespace east-gpuledger-nodes"),
        ("agent.namespace=other", "this release made the namespace east-gpuledger-nodes"),
        ("agent.enabled=false", "this release made the namespace east-gpuledger-nodes"),
        ("nats.storage.size=20Gi", "the volumes of the log have the size 10Gi"),
        ("nats.storage.class=fast", 'the size 10Gi and the class ""'),
        ("cluster=west-1", "this release counts the cluster east-1"),
        ("settings.shard=other", "the log of this release is main, and other would be another"),
    ],
)
def test_an_upgrade_that_deletes_or_fails_is_refused(
    helm: Helm, notes: str, given: str, refusal: str
) -> None:
    shown = install(helm, "east", PARTS, given, verb="upgrade", attempt=True)
    assert given.partition(".")[0].partition("=")[0] in shown
    assert refusal in shown


def test_an_upgrade_from_external_log_servers_to_own_ones_is_refused(
    helm: Helm,
) -> None:
    outside = ("nats.mode=external", "nats.servers={nats://a.example:4222}")
    install(helm, "far", *outside, "nats.auth.existingSecret=login")
    shown = install(helm, "far", verb="upgrade", attempt=True)
    helm("uninstall", "far", "--namespace=far", "--no-hooks")
    assert "nats.mode: the log of this release is on nats://a.example:4222" in shown


def test_the_same_size_in_other_units_is_accepted(helm: Helm, notes: str) -> None:
    install(helm, "east", PARTS, "nats.storage.size=10240Mi", verb="upgrade")


def test_the_log_that_runs_keeps_a_limit_larger_than_its_volumes(
    helm: Helm, kubectl: Kubectl, notes: str
) -> None:
    """Less than it has stored would stop it."""
    install(helm, "east", PARTS, "nats.storage.maxFileStore=20GB", verb="upgrade")
    shown = install(helm, "south", "nats.storage.maxFileStore=20GB", attempt=True)
    assert "nats.storage.maxFileStore: 20GB is not less than the volume" in shown


def test_objects_of_other_charts_of_the_release_do_not_stop_an_upgrade(
    helm: Helm, kubectl: Kubectl, notes: str
) -> None:
    kubectl.type("kubectl -n east create deployment stranger --image=other")
    kubectl.type("kubectl create namespace stranger")
    for stranger in ("deployment/stranger", "namespace/stranger"):
        kubectl.type(
            f"kubectl -n east annotate {stranger} meta.helm.sh/release-name=east"
            " meta.helm.sh/release-namespace=east"
        )
        kubectl.type(f"kubectl -n east label {stranger} app.kubernetes.io/component=service")
    install(helm, "east", PARTS, verb="upgrade")
    kubectl.type("kubectl -n east delete deployment/stranger namespace/stranger --wait=false")


def test_larger_volumes_are_accepted_without_the_statefulset(
    helm: Helm, kubectl: Kubectl, notes: str
) -> None:
    kubectl.type("kubectl -n east delete statefulset east-gpuledger-nats --cascade=orphan")
    shown = install(helm, "east", PARTS, "nats.mode=cluster", verb="upgrade", attempt=True)
    assert "the log of this release has 1 server(s)" in shown
    install(helm, "east", PARTS, "nats.storage.size=20Gi", verb="upgrade")
    log = kubectl.get("east", "statefulset/east-gpuledger-nats")["spec"]
    [claim] = log["volumeClaimTemplates"]
    assert claim["spec"]["resources"]["requests"] == {"storage": "20Gi"}


@pytest.mark.long
def test_a_namespace_that_is_kept_may_leave_the_release(
    helm: Helm, kubectl: Kubectl, notes: str
) -> None:
    name = "east-gpuledger-nodes"
    kubectl.type(f"kubectl annotate namespace {name} helm.sh/resource-policy=keep")
    kept = (PARTS, "nats.storage.size=20Gi")
    install(helm, "east", *kept, "agent.createNamespace=false", verb="upgrade")
    assert kubectl.get("east", f"namespace/{name}")["status"]["phase"] == "Active"
    kubectl.type(f"kubectl annotate namespace {name} helm.sh/resource-policy-")
    install(helm, "east", *kept, verb="upgrade")


def test_an_uninstall_leaves_the_definitions_and_the_volumes(
    helm: Helm, kubectl: Kubectl, notes: str
) -> None:
    helm("uninstall", "east", "--namespace=east", "--no-hooks")
    left = kubectl.type(f"kubectl get {CLUSTER_SCOPED} -o name").split()
    assert [name for name in left if "east-gpuledger" in name] in (
        [],
        ["namespace/east-gpuledger-nodes"],  # Its controller removes it a moment later.
    )
    volumes = kubectl.type("kubectl -n east get persistentvolumeclaims -o name").split()
    assert {name.partition("/")[2] for name in volumes} == {
        "data-east-gpuledger-nats-0",
        "east-gpuledger-backup",
    }
    kept = kubectl.type("kubectl get crd -o name")
    assert "ledgerpolicies.gpuledger.io" in kept
