"""The rig itself: what a pod of a real cluster expects, before anything of ours is installed."""

import asyncio
import base64
import json
import time
from datetime import UTC, datetime
from pathlib import Path

import pytest

from ledger.runtime.tls import server_certificate
from tests.e2e.harness import second_webhook
from tests.e2e.harness.cluster import Manifest
from tests.e2e.harness.polling import eventually
from tests.e2e.install.rig.images import BUSYBOX, SERVICE
from tests.e2e.install.rig.real_cluster import RealCluster
from tests.e2e.install.story.load import Load
from tests.e2e.install.story.timeline import Timeline

pytestmark = [pytest.mark.e2e, pytest.mark.install, pytest.mark.timeout(300)]

UID = 65532
WITHIN = "--timeout=60s"
LOAD_SECONDS = 3.0
IN_A_POD = """
import json, pathlib, ssl, urllib.request
account = pathlib.Path("/var/run/secrets/kubernetes.io/serviceaccount")
token, ca = (account / "token").read_text(), str(account / "ca.crt")
def ask(url, **options):
    request = urllib.request.Request(url, headers={"Authorization": "Bearer " + token})
    with urllib.request.urlopen(request, timeout=10, **options) as answer:
        return answer.read().decode()
context = ssl.create_default_context(cafile=ca)
print(json.dumps({
    "version": json.loads(ask("https://kubernetes.default.svc/version", context=context)),
    "greetings": [ask("http://web/greeting") for _ in range(30)],
    "by domain": ask("http://web.default.svc.cluster.local/greeting"),
}))
"""
WEBHOOK = """
import pathlib, second_webhook
pem = pathlib.Path("/program/server.pem")
second_webhook.SecondWebhook(pem, pem, listen=("0.0.0.0", 8443))
"""
SERVE = "echo hello from $NODE >/tmp/greeting; exec httpd -f -p 8080 -h /tmp"


def deployment(name: str, command: str, replicas: int) -> Manifest:
    labels = {"app": name}
    node = {"name": "NODE", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}}
    main = {
        "name": "main",
        "image": BUSYBOX,
        "command": ["/bin/sh", "-c", command],
        "env": [node],
    }
    spread = {
        "maxSkew": 1,
        "topologyKey": "kubernetes.io/hostname",
        "whenUnsatisfiable": "ScheduleAnyway",
        "labelSelector": {"matchLabels": labels},
        # Pods of the revision before would push all new ones to the other node.
        "matchLabelKeys": ["pod-template-hash"],
    }
    spec = {
        "terminationGracePeriodSeconds": 0,
        "topologySpreadConstraints": [spread],
        "tolerations": [
            {"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 1}
            for key in ("node.kubernetes.io/unreachable", "node.kubernetes.io/not-ready")
        ],
        "containers": [main],
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": spec},
        },
    }


def service(name: str, port: int, target: int) -> Manifest:
    ports = [{"port": port, "targetPort": target}]
    spec = {"selector": {"app": name}, "ports": ports}
    return {"apiVersion": "v1", "kind": "Service", "metadata": {"name": name}, "spec": spec}


def pod(name: str, *, script: str = "", **spec: object) -> Manifest:
    """Return a pod of the product's image that runs a Python program."""
    main = {
        "name": "main",
        "image": SERVICE,
        "command": ["python3", "-c", script],
        "securityContext": {"runAsNonRoot": True, "runAsUser": UID, "readOnlyRootFilesystem": True},
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": {"app": name}},
        "spec": {
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": 0,
            "containers": [main],
            **spec,
        },
    }


@pytest.fixture(scope="module")
def web(shared_cluster: RealCluster, product_images: list[Path]) -> RealCluster:
    """Import the images, and serve a greeting from both nodes."""
    for archive in product_images:
        shared_cluster.import_image(archive)
    shared_cluster.apply(deployment("web", SERVE, 2), service("web", 80, 8080))
    shared_cluster.kubectl.type(f"kubectl rollout status deployment/web {WITHIN}")
    return shared_cluster


def test_a_pod_reaches_services_by_name_and_the_api_server(web: RealCluster) -> None:
    web.apply(pod("client", script=IN_A_POD))
    answers = json.loads(web.output("default", "client"))
    assert answers["version"]["gitVersion"].startswith("v1.")
    greetings = {f"hello from {node}\n" for node in ("a", "b")}
    assert set(answers["greetings"]) == greetings
    assert answers["by domain"] in greetings


def test_a_webhook_in_a_pod_is_called_by_its_service(web: RealCluster, tmp_path: Path) -> None:
    files = server_certificate.ensure(tmp_path, ["hook.default.svc"], datetime.now(UTC))
    authority = Path(files.authority).read_bytes()
    program = {
        "second_webhook.py": Path(second_webhook.__file__).read_text(),
        "server.pem": Path(files.certificate).read_text(),
        "main.py": WEBHOOK,
    }
    client = {
        "service": {"namespace": "default", "name": "hook", "port": 443, "path": "/"},
        "caBundle": base64.b64encode(authority).decode(),
    }
    mounted = {"name": "program", "mountPath": "/program"}
    manifest = pod("hook", volumes=[{"name": "program", "configMap": {"name": "hook"}}])
    manifest["spec"]["containers"][0] |= {
        "command": ["python3", "/program/main.py"],
        "volumeMounts": [mounted],
        "readinessProbe": {"tcpSocket": {"port": 8443}, "periodSeconds": 1},
    }
    metadata = {"name": "hook"}
    data = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": program}
    web.apply(data, manifest, service("hook", 443, 8443))
    web.kubectl.type(f"kubectl wait --for=condition=Ready pod/hook {WITHIN}")
    web.apply(second_webhook.configuration(client))
    refused = pod("refused")
    refused["metadata"]["labels"] = second_webhook.DENY

    async def answer() -> str:
        async with web.connected() as admin:
            path = "/api/v1/namespaces/default/pods?dryRun=All"
            return (await admin.ask("POST", path, refused)).message

    asyncio.run(
        eventually(
            answer,
            lambda text: second_webhook.REFUSAL in text,
            within=30,
            what="the pod is refused",
        )
    )
    web.kubectl.type(f"kubectl delete validatingwebhookconfiguration {second_webhook.NAME}")


def test_a_claim_is_bound_and_its_volume_written_by_a_user(web: RealCluster) -> None:
    spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    metadata = {"name": "disk"}
    claim = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": metadata}
    claimed = {"name": "disk", "persistentVolumeClaim": {"claimName": "disk"}}
    script = "import pathlib; pathlib.Path('/disk/written').write_text('by the pod')"
    writer = pod("writer", script=script, volumes=[claimed], securityContext={"fsGroup": UID})
    writer["spec"]["containers"][0]["volumeMounts"] = [{"name": "disk", "mountPath": "/disk"}]
    web.apply({**claim, "spec": spec}, writer)
    web.output("default", "writer")
    (written,) = (web.folder / "volumes").glob("pvc-*/written")
    assert written.read_text() == "by the pod"
    assert written.stat().st_uid == UID
    web.kubectl.type(f"kubectl delete pod/writer persistentvolumeclaim/disk {WITHIN}")
    web.kubectl.type(f"kubectl wait --for=delete persistentvolume --all {WITHIN}")
    assert not written.exists()


def test_a_node_is_drained_lost_and_comes_back(web: RealCluster) -> None:
    timeline, node = Timeline(), web.node("b")
    with timeline.step("node b is drained"):
        node.drain()
        web.kubectl.type(f"kubectl rollout status deployment/web {WITHIN}")
    assert nodes_of(web, "web") == {"a"}
    with timeline.step("node b takes pods again"):
        node.uncordon()
        web.kubectl.type("kubectl rollout restart deployment/web")
        web.kubectl.type(f"kubectl rollout status deployment/web {WITHIN}")
    assert nodes_of(web, "web") == {"a", "b"}
    with timeline.step("node b has a power cut, and is lost"):
        node.kill()
        web.kubectl.type(f"kubectl wait --for=condition=Ready=Unknown node/b {WITHIN}")
    with timeline.step("its pods are replaced"):
        web.kubectl.type(f"kubectl rollout status deployment/web {WITHIN}")
    with timeline.step("node b boots"):
        node.start()
        web.kubectl.type(f"kubectl wait --for=condition=Ready node/b {WITHIN}")


def test_the_load_sees_a_refusal(web: RealCluster) -> None:
    """The negative control of every story that counts none."""
    load = Load(web, 20.0)
    with load.running():
        time.sleep(LOAD_SECONDS)
    assert load.sent.total() > LOAD_SECONDS * 10
    assert load.refusals == []
    web.kubectl.type("kubectl -n load create quota none --hard=pods=0")
    with load.running():
        time.sleep(LOAD_SECONDS)
    assert {refusal.status for refusal in load.refusals} == {403}


def nodes_of(cluster: RealCluster, app: str) -> set[str]:
    """Return the nodes of the running pods of an app."""
    return {
        each["spec"]["nodeName"]
        for each in cluster.pods("default")
        if each["metadata"]["labels"].get("app") == app
        and each["status"]["phase"] == "Running"
        and "deletionTimestamp" not in each["metadata"]
    }
