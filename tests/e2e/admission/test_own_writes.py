"""The service's token is good for the service's own writes: deploy/, on a real API server.

Its own writes go through the service's own client, with a token of its account. The others are what
a thief of that token would try with the same verbs on the same resources.
"""

import shutil
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from ledger.kube.api.api_resources import POLICIES, UNIVERSE_QUOTAS
from ledger.kube.api.cluster_ports import PodBinding, PodEvent
from ledger.kube.api.pod_gates import GATE
from ledger.kube.client.api_client import ApiClient
from ledger.kube.client.certificate_secret import CertificateSecret
from ledger.kube.cluster.kubernetes_cluster import KubernetesCluster
from ledger.kube.hami import annotation_keys, node_lock_annotation
from ledger.kube.hami.fence_label import LABEL
from tests.e2e.conftest import _connected
from tests.e2e.harness.cluster import Answer, Cluster, Manifest
from tests.e2e.harness.controlplane import ADMIN, ControlPlane
from tests.e2e.harness.kubectl import Kubectl
from tests.e2e.harness.polling import eventually
from tests.e2e.objects import definitions
from tests.e2e.objects.forged_writes import (
    ELSEWHERE,
    FENCED,
    FORGED,
    HELD,
    KEY,
    NAME,
    NODE,
    SECRETS,
    SPACE,
    SYSTEM,
    TEAM,
    UNIVERSE,
    UQ,
    P,
    event,
    events,
    found_configurations,
    hook,
    hooks,
    image,
    mutator,
    patched,
    pod,
    posted,
    quota,
    secret,
)
from tests.e2e.objects.replica_pods import ROLE_STATUSES, role_writes
from webhook.configurations import webhook_configurations

pytestmark = pytest.mark.e2e

ROOT: Final = Path(__file__).parents[3]
EFFECTIVE_SECONDS: Final = 60.0
ALLOCATED: Final = annotation_keys.VENDOR_ANNOTATIONS["nvidia"].allocated
FOREIGN: Final = "example.com/gate"


@pytest.fixture(scope="module")
def plane(assets: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """Run a control plane with what an administrator applies, preemption included."""
    folder = tmp_path_factory.mktemp("own-writes")
    running = ControlPlane(assets, folder)
    running.start()
    shutil.copytree(ROOT / "deploy", folder / "deploy")
    typist = Kubectl(assets, running.kubeconfig(ADMIN), folder)
    typist.type("kubectl apply -k deploy")
    typist.type("kubectl apply -k deploy/scheduler")
    typist.type("kubectl apply -k deploy/preemption")
    typist.type("kubectl apply -k deploy/certificates")
    yield running
    running.stop()


@pytest.fixture
async def admin(plane: ControlPlane) -> AsyncIterator[Cluster]:
    async with _connected(plane) as cluster:
        yield cluster


async def token(admin: Cluster, account: str = NAME) -> str:
    """Return a token of an account of the service's namespace."""
    request = {"spec": {"audiences": ["https://kubernetes.default.svc"]}}
    path = f"/api/v1/namespaces/{SPACE}/serviceaccounts/{account}/token"
    return str((await admin.must("POST", path, request))["status"]["token"])


@pytest.fixture
async def service(admin: Cluster, plane: ControlPlane) -> Cluster:
    """Return the API server as the service sees it, with all policies in effect."""
    await populate(admin)
    cluster = admin.with_token(await token(admin))
    for name, wrong in (
        ("pods", lambda: cluster.patch(f"{TEAM}/pods/p?dryRun=All", image("evil"))),
        ("quotas", lambda: cluster.ask("POST", f"{SYSTEM}/resourcequotas?dryRun=All", quota("q"))),
        ("nodes", lambda: cluster.patch(f"{NODE}?dryRun=All", {"spec": {"unschedulable": True}})),
        ("webhooks", lambda: cluster.ask("POST", hooks("validating") + "?dryRun=All", hook("x"))),
        (
            "events",
            lambda: cluster.ask("POST", events("team") + "?dryRun=All", event(reporter="x")),
        ),
        ("bindings", lambda: bind(cluster, "?dryRun=All", annotations={"a": "b"})),
        ("secrets", lambda: cluster.ask("POST", f"{SECRETS}?dryRun=All", secret("x"))),
        ("quota status", lambda: cluster.patch(f"{TEAM}/resourcequotas/q/status?dryRun=All", HELD)),
    ):
        await eventually(
            wrong,
            lambda answer: answer.status == 403 and "ValidatingAdmissionPolicy" in answer.message,
            within=EFFECTIVE_SECONDS,
            what=f"the policy on {name} is in effect",
        )
    return cluster


@pytest.fixture
async def client(service: Cluster, admin: Cluster, plane: ControlPlane, tmp_path: Path) -> Any:
    """Return the service's own client with the service's own token."""
    config = yaml.safe_load(plane.kubeconfig(ADMIN).read_text())
    config["users"][0]["user"] = {"token": await token(admin)}
    path = tmp_path / "kubeconfig"
    path.write_text(yaml.safe_dump(config))
    async with await ApiClient.connect(path) as connected:
        yield connected


async def made(admin: Cluster, path: str, manifest: Manifest) -> None:
    await eventually(
        lambda: admin.ask("POST", path, manifest),
        lambda answer: answer.status in (201, 409),
        within=EFFECTIVE_SECONDS,
        what=f"{path} has {manifest['metadata']['name']}",
    )


async def populate(admin: Cluster) -> None:
    """Make what is written to: a node, pods that wait and pods that run, quotas."""
    await made(admin, "/api/v1/nodes", {"metadata": {"name": "n1"}})
    await made(admin, "/api/v1/namespaces", {"metadata": {"name": "team"}})
    for name in ("p", "bound", "seen", "free"):
        await made(admin, f"{TEAM}/pods", pod(name, gates=[GATE, FOREIGN] if name == "p" else []))
    await made(admin, f"{TEAM}/pods", pod("own", gates=[GATE]))
    fenced = pod("fenced")
    fenced["metadata"]["labels"] = {LABEL: "1"}
    await made(admin, f"{TEAM}/pods", fenced)
    await made(admin, f"{SYSTEM}/pods", pod("critical", node="n1"))
    await made(admin, f"{TEAM}/resourcequotas", quota("q"))
    manifest = {"metadata": {"name": "u"}, "spec": {"hard": {"limits.nvidia.com/gpumem": "1"}}}
    await made(admin, UNIVERSE, {"apiVersion": "gpuledger.io/v1alpha1"} | manifest | UQ)
    harmless = definitions.policy(namespaces=["none"]) | {"metadata": {"name": "p"}}
    await made(admin, POLICIES.collection(), harmless)
    # The quota controller writes the first status, and changes the version by it.
    await eventually(
        lambda: admin.must("GET", f"{TEAM}/resourcequotas/q"),
        lambda stored: "hard" in stored["status"],
        within=EFFECTIVE_SECONDS,
        what="the quota has its first status",
    )


async def bind(service: Cluster, query: str = "", **metadata: Any) -> Answer:
    return await service.ask(
        "POST",
        f"{TEAM}/pods/free/binding{query}",
        {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"name": "free", **metadata},
            "target": {"apiVersion": "v1", "kind": "Node", "name": "n1"},
        },
    )


async def send(service: Cluster, method: str, path: str, body: Manifest) -> Answer:
    kind = "application/merge-patch+json" if method == "PATCH" else "application/json"
    query = "dryRun=All" if "?" not in path else ""
    return await service.ask(method, f"{path}?{query}", body, headers={"Content-Type": kind})


async def test_no_forged_write_of_the_services_account_is_accepted(service: Cluster) -> None:
    accepted = {}
    for what, (method, path, body) in FORGED.items():
        answer = await send(service, method, path, body)
        if answer.status != 403 or "ValidatingAdmissionPolicy" not in answer.message:
            accepted[what] = (answer.status, answer.message)
    assert accepted == {}


@pytest.mark.parametrize(
    "metadata", [{"annotations": {"a": "b"}}, {"labels": {"app": "bank"}}, {}], ids=str
)
async def test_a_binding_carries_what_is_of_the_service(
    service: Cluster, metadata: Manifest
) -> None:
    answer = await bind(service, "?dryRun=All", **metadata)
    assert answer.status == 403
    assert "gpuledger" in answer.message


async def test_the_scheduler_has_the_same_bounds_and_registers_nothing(
    admin: Cluster, service: Cluster
) -> None:
    assert service is not None
    scheduler = admin.with_token(await token(admin, "gpuledger-scheduler"))
    for what, (method, path, body) in FORGED.items():
        if "event" in what:
            # The scheduler reports events of all pods that it schedules, in its own name.
            continue
        assert (await send(scheduler, method, path, body)).status == 403, what
    answer = await scheduler.ask("POST", hooks("validating") + "?dryRun=All", hook())
    assert answer.status == 403
    assert (await bind(scheduler, "?dryRun=All")).status == 201


async def test_evictions_are_of_pods_of_tenants_by_their_uid(
    admin: Cluster, service: Cluster
) -> None:
    assert (await evict(service, "team", "seen", "u")).status == 403, "only the extender evicts"
    extender = admin.with_token(await token(admin, "gpuledger-scheduler"))
    for namespace, name, uid in (("kube-system", "critical", "u"), ("team", "seen", "")):
        answer = await evict(extender, namespace, name, uid)
        assert answer.status == 403
        assert "gpuledger-own-evictions" in answer.message
    uid = (await admin.must("GET", f"{TEAM}/pods/seen"))["metadata"]["uid"]
    assert (await evict(extender, "team", "seen", uid)).status == 201


async def evict(user: Cluster, namespace: str, name: str, uid: str) -> Answer:
    eviction: Manifest = {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": name, "namespace": namespace},
    }
    if uid:
        eviction["deleteOptions"] = {"preconditions": {"uid": uid}}
    path = f"/api/v1/namespaces/{namespace}/pods/{name}/eviction?dryRun=All"
    return await user.ask("POST", path, eviction)


async def test_everything_that_the_service_writes_is_accepted(
    admin: Cluster, client: ApiClient
) -> None:
    port = KubernetesCluster(client)
    shared_secret = CertificateSecret(client, namespace=SPACE, name="gpuledger-tls")
    bound, told = await uid_of(admin, "bound"), await uid_of(admin, "p")
    names = {annotation_keys.NODE: "n1"}
    notes = names | {ALLOCATED: "x"}
    of_pod = {"namespace": "team", "name": "bound", "uid": bound}
    binding = PodBinding(**of_pod, node="n1", annotations=notes, labels=names)
    event_of = PodEvent(
        namespace="team", name="p", uid=told, reason="Preempted", note="a note", action="Tell"
    )
    lock_text = node_lock_annotation.write("team", "a" * 200, datetime.now(UTC))
    room_text = datetime(2026, 1, 31, 12, 0, 0, 123_456, UTC).isoformat()
    gated = await version_of(admin, f"{TEAM}/pods/own")
    counted = await version_of(admin, f"{TEAM}/resourcequotas/q")
    seen = await version_of(admin, f"{TEAM}/pods/seen")
    fenced = await version_of(admin, FENCED)
    try:
        for write in (
            port.remove_gate("team", "own", GATE, gated),
            port.label_pod("team", "fenced", {LABEL: "2"}, str(fenced)),
            port.bind(binding),
            port.patch_pod_annotations("team", "seen", {ALLOCATED: "x"}, str(seen)),
            port.patch_node_annotations("n1", {annotation_keys.LOCK: lock_text}),
            port.patch_node_annotations("n1", {annotation_keys.LOCK: None}),
            port.patch_node_annotations("n1", {annotation_keys.ROOM_FOUND: room_text}),
            port.create_quota("team", "gpuledger-default", {KEY: "4", "pods": "999"}),
            port.patch_quota_status("team", "q", {KEY: "1"}, counted),
            port.replace_status(UNIVERSE_QUOTAS, "u", {"used": {}}),
            port.replace_status(POLICIES, "p", {"namespaces": 1}),
            port.create_event(event_of),
            webhook_configurations.register(client, found_configurations()),
            webhook_configurations.register(client, found_configurations()),
            shared_secret.create({"ca.crt": b"x", "tls.crt": b"x"}),
        ):
            await write
        stored = await shared_secret.read()
        assert stored is not None
        assert await shared_secret.update(stored, {"tls.crt": b"y"})
    finally:
        # The API server would ask a service that is not there; a second run needs pods without a
        # node.
        for kind in ("validating", "mutating"):
            await admin.ask("DELETE", f"{hooks(kind)}/{NAME}")
        for name in ("own", "fenced", "bound", "seen"):
            await admin.ask("DELETE", f"{TEAM}/pods/{name}?gracePeriodSeconds=0")
        await admin.ask("DELETE", f"{TEAM}/resourcequotas/gpuledger-default")
        await admin.ask("DELETE", f"{SECRETS}/gpuledger-tls")


async def test_the_service_is_registered_by_its_name_in_the_cluster_as_well(
    service: Cluster,
) -> None:
    for host, status in (
        (f"{NAME}.{SPACE}.svc", 201),
        (f"{NAME}.{SPACE}.svc:8443", 201),
        (f"{NAME}.{SPACE}.svc.evil.example", 403),
        (f"evil.example/{NAME}.{SPACE}.svc", 403),
    ):
        there = {"url": f"https://{host}/admission/validate"}
        answer = await send(service, *posted(hooks("validating"), hook(clientConfig=there)))
        assert answer.status == status, (host, answer.message)


async def test_the_service_narrows_a_webhook_registered_with_another_url(
    admin: Cluster, service: Cluster
) -> None:
    there = {"url": "https://ledger.example:8443/admission/mutate"}
    path = hooks("mutating")
    # It is asked about nothing: there is no such host.
    nothing = {"matchConditions": [{"name": "none", "expression": "false"}]}
    await admin.must("POST", path, mutator(clientConfig=there, **nothing))
    try:
        narrow = {"matchConditions": [{"name": "narrow", "expression": "false && true"}]}
        for body, status in (
            (mutator(clientConfig=there, **narrow), 200),
            (mutator(clientConfig=ELSEWHERE, **narrow), 403),
        ):
            answer = await send(service, *patched(f"{path}/{NAME}", body))
            assert answer.status == status, answer.message
    finally:
        await admin.must("DELETE", f"{path}/{NAME}")


async def test_the_service_writes_its_annotations_and_fence_label_on_pods(
    service: Cluster,
) -> None:
    for field, key in (
        ("annotations", "gpuledger.io/fence"),
        ("annotations", "hami.io/vgpu-devices-allocated"),
        ("annotations", "hami.io/Ascend910B4-1-devices-allocated"),
        ("labels", LABEL),
    ):
        answer = await send(service, *patched(P, {"metadata": {field: {key: "y"}}}))
        assert answer.status == 200, answer.message


async def test_a_replica_gives_itself_the_role_and_removes_that_of_others(
    admin: Cluster, service: Cluster
) -> None:
    answers = await role_writes(admin, service, tenant=P)
    assert {what: answer.status for what, answer in answers.items()} == ROLE_STATUSES


async def uid_of(admin: Cluster, name: str) -> str:
    return str((await admin.must("GET", f"{TEAM}/pods/{name}"))["metadata"]["uid"])


async def version_of(admin: Cluster, path: str) -> int:
    return int((await admin.must("GET", path))["metadata"]["resourceVersion"])


async def test_a_status_of_a_universe_quota_changes_nothing_else(
    admin: Cluster, service: Cluster
) -> None:
    await service.patch(f"{UNIVERSE}/u/status", HELD | {"spec": {"hard": {KEY: "9"}}})
    stored = await admin.must("GET", f"{UNIVERSE}/u")
    assert "finalizers" not in stored["metadata"]
    assert stored["spec"]["hard"] == {"limits.nvidia.com/gpumem": "1"}


def test_every_policy_is_bound_and_about_the_services_accounts() -> None:
    for file in (
        ROOT / "deploy" / "own-writes.yaml",
        ROOT / "deploy" / "preemption" / "access.yaml",
        ROOT / "deploy" / "certificates" / "access.yaml",
    ):
        manifests = list(yaml.safe_load_all(file.read_text()))
        policies = [
            manifest for manifest in manifests if manifest["kind"] == "ValidatingAdmissionPolicy"
        ]
        bindings = [
            manifest
            for manifest in manifests
            if manifest["kind"] == "ValidatingAdmissionPolicyBinding"
        ]
        assert policies
        assert [binding["spec"]["policyName"] for binding in bindings] == [
            policy["metadata"]["name"] for policy in policies
        ]
        for policy in policies:
            [condition] = policy["spec"]["matchConditions"]
            assert f'"system:serviceaccount:{SPACE}:{NAME}"' in condition["expression"]
            assert policy["spec"]["failurePolicy"] == "Fail"
