"""Other values than those of the README: three log servers, cert-manager, two releases.

cert-manager is played: the definitions of its kinds are made here without their schemas, and its
controller is this test, which signs the certificate by openssl and writes its Secret.
"""

import base64
import json
import re
import shlex
import subprocess
from pathlib import Path
from typing import Any, Final

import pytest

from tests.e2e.harness.cluster import Manifest
from tests.e2e.install.rig.real_cluster import RealCluster
from tests.e2e.install.story.timeline import Timeline

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.install,
    pytest.mark.long,
    pytest.mark.timeout(900),
]

CHART: Final = str(Path(__file__).parents[3] / "deploy" / "chart" / "gpuledger")
SMALL: Final = ("resources.requests.cpu=100m", "nats.resources.requests.cpu=100m")
"""Because three releases run on the cores of one machine."""

DENIED: Final = re.compile(
    r'admission webhook "[a-z.]*gpuledger\.io" denied the request: .*decision [0-9a-f-]+', re.DOTALL
)
ATTEMPTS: Final = 60
OPENSSL_SECONDS: Final = 30.0
TEAM: Final = "team-a"


@pytest.fixture(scope="module")
def timeline() -> Timeline:
    """Print the steps of this file."""
    return Timeline()


@pytest.fixture(scope="module")
def cluster(
    shared_cluster: RealCluster, product_images: list[Path], timeline: Timeline
) -> RealCluster:
    """Import the images, and make a namespace with a quota."""
    with timeline.step("the images are on both nodes of a bare cluster"):
        for archive in product_images:
            shared_cluster.import_image(archive)
    shared_cluster.kubectl.type(
        f"kubectl create namespace {TEAM}\n"
        f"kubectl -n {TEAM} create quota gpus --hard=limits.nvidia.com/gpumem=16000"
    )
    return shared_cluster


def install(cluster: RealCluster, release: str, *sets: str, wait: bool = True) -> None:
    """Install a release in a namespace of its own, gpu-RELEASE."""
    given = [f"--set={item}" for item in (f"cluster={release}-1", *SMALL, *sets)]
    options = ["--wait", "--timeout=4m"] if wait else []
    namespace = [f"--namespace=gpu-{release}", "--create-namespace"]
    cluster.helm("install", release, CHART, *namespace, *given, *options)


def ask(cluster: RealCluster, memory: int) -> str:
    """Ask for a pod as a dry run; return the output of kubectl."""
    limits = {"nvidia.com/gpu": "1", "nvidia.com/gpumem": str(memory)}
    container = {"name": "p", "image": "none", "resources": {"limits": limits}}
    overrides = shlex.quote(json.dumps({"spec": {"containers": [container]}}))
    _, printed = cluster.kubectl.attempt(
        f"kubectl -n {TEAM} run p --image=none --dry-run=server --overrides={overrides}"
    )
    return printed


def assert_decides(cluster: RealCluster) -> None:
    """Fail unless a pod beyond the quota is denied by gpuledger, and one within it is allowed."""
    for _ in range(ATTEMPTS):
        if DENIED.search(ask(cluster, 20_000)):
            break
    else:
        raise AssertionError(f"the pod is not denied by gpuledger: {ask(cluster, 20_000)}")
    assert "created" in ask(cluster, 8_000)


def test_three_log_servers_under_another_name_and_namespace(
    cluster: RealCluster, timeline: Timeline
) -> None:
    with timeline.step("helm install east, nats.mode=cluster"):
        install(cluster, "east", "nats.mode=cluster")
    with timeline.step("a pod is denied, another one allowed"):
        assert_decides(cluster)
    logs = [pod for pod in cluster.pods("gpu-east") if "nats" in pod["metadata"]["name"]]
    assert len(logs) == 3
    assert {pod["spec"]["nodeName"] for pod in logs} == {"a", "b"}
    with timeline.step("helm test east"):
        cluster.helm("test", "east", "--namespace=gpu-east")


def test_two_releases_of_two_clusters_do_not_meet(cluster: RealCluster, timeline: Timeline) -> None:
    with timeline.step("helm install west, beside east"):
        install(cluster, "west")
    configurations = cluster.kubectl.type("kubectl get validatingwebhookconfigurations -o name")
    for release in ("east", "west"):
        assert f"/{release}-gpuledger\n" in f"{configurations}\n"
        with timeline.step(f"helm test {release}"):
            cluster.helm("test", release, f"--namespace=gpu-{release}")
    with timeline.step("helm uninstall east"):
        cluster.helm("uninstall", "east", "--namespace=gpu-east", "--wait", "--timeout=4m")
    left = cluster.kubectl.type(
        "kubectl get validatingwebhookconfigurations,mutatingwebhookconfigurations,clusterroles,"
        "clusterrolebindings,validatingadmissionpolicies -o name"
    )
    assert "east-gpuledger" not in left
    with timeline.step("west still decides"):
        assert_decides(cluster)
    with timeline.step("helm uninstall west"):
        cluster.helm("uninstall", "west", "--namespace=gpu-west", "--wait", "--timeout=4m")
    assert "created" in ask(cluster, 20_000)


def test_certificates_by_a_played_cert_manager(
    cluster: RealCluster, timeline: Timeline, tmp_path: Path
) -> None:
    cluster.apply(*(definition(kind) for kind in ("Issuer", "Certificate")))
    cluster.kubectl.type("kubectl wait --for=condition=Established crd --all --timeout=60s")
    with timeline.step("helm install north, certManager.enabled=true"):
        install(cluster, "north", "certManager.enabled=true", wait=False)
    certificate = cluster.kubectl.get("gpu-north", "certificate.cert-manager.io/north-gpuledger")
    with timeline.step("the played issuer writes the Secret"):
        cluster.apply(signed(certificate, tmp_path))
    with timeline.step("the Deployment is ready"):
        typed = "kubectl -n gpu-north rollout status deployment/north-gpuledger --timeout=3m"
        cluster.kubectl.type(typed, within=200)
    with timeline.step("a pod is denied, another one allowed"):
        assert_decides(cluster)
    with timeline.step("helm uninstall north"):
        cluster.helm("uninstall", "north", "--namespace=gpu-north", "--wait", "--timeout=4m")


def definition(kind: str) -> Manifest:
    """Return a definition of a kind of cert-manager that accepts any spec."""
    plural = f"{kind.lower()}s"
    anything = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    version = {
        "name": "v1",
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": anything},
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.cert-manager.io"},
        "spec": {
            "group": "cert-manager.io",
            "scope": "Namespaced",
            "names": {"kind": kind, "plural": plural, "singular": kind.lower()},
            "versions": [version],
        },
    }


def signed(certificate: dict[str, Any], folder: Path) -> Manifest:
    """Return the Secret that cert-manager would write for a Certificate."""
    spec = certificate["spec"]
    names = ",".join(f"DNS:{name}" for name in spec["dnsNames"])
    new = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 30"
    commands = (
        f"{new} -subj /CN=played-ca -keyout ca.key -out ca.crt",
        f"{new} -subj /CN=played -addext subjectAltName={names}"
        " -addext basicConstraints=critical,CA:FALSE -addext extendedKeyUsage=serverAuth"
        " -CA ca.crt -CAkey ca.key -keyout tls.key -out tls.crt",
    )
    for command in commands:
        subprocess.run(
            shlex.split(command),
            cwd=folder,
            check=True,
            capture_output=True,
            timeout=OPENSSL_SECONDS,
        )
    files = ("ca.crt", "tls.crt", "tls.key")
    data = {name: base64.b64encode((folder / name).read_bytes()).decode() for name in files}
    metadata = {"name": spec["secretName"], "namespace": certificate["metadata"]["namespace"]}
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "type": "kubernetes.io/tls",
        "metadata": metadata,
        "data": data,
    }
