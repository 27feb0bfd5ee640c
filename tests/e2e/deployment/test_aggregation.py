"""The aggregated API at a real API server: rights, impersonation, forged users, rotated CAs."""

import asyncio
import json
import ssl
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, Final, NamedTuple

import aiohttp
import pytest
import pytest_asyncio
import yaml
from support.servers.ports import free_port

from tests.e2e.conftest import _connected
from tests.e2e.deployment.support import aggregation_cluster
from tests.e2e.deployment.support.aggregation_cluster import (
    CONFIG_MAP,
    HOST,
    PROXY,
    ROOT,
    SOON,
    SPACE,
    Authority,
    Certificates,
    Laptop,
    available,
    kubeconfig,
    register,
    request,
)
from tests.e2e.harness import own_control_plane
from tests.e2e.harness.authorization import are_applied, grant
from tests.e2e.harness.bootstrap import _rules
from tests.e2e.harness.cluster import Answer, Cluster
from tests.e2e.harness.controlplane import ADMIN, SERVICE, ControlPlane
from tests.e2e.harness.polling import eventually
from tests.e2e.harness.service import Service
from tests.e2e.objects.pods import MEMORY, pod
from tests.e2e.operation.support.install_check import typed
from tools.manifests import helm_chart

pytestmark = [pytest.mark.e2e, pytest.mark.asyncio(loop_scope="session")]

CHECKOUT: Final = Path(__file__).parents[3]
POLICY: Final = "gpuledger-own-apiservice"
PLURALS: Final = {
    "ValidatingAdmissionPolicy": "validatingadmissionpolicies",
    "ValidatingAdmissionPolicyBinding": "validatingadmissionpolicybindings",
}
READS: Final = ["usage", "holders", "holds", "events", "denials", "drift", "waiting"]
TEAM_A: Final = f"{ROOT}/namespaces/team-a"


class Aggregation(NamedTuple):
    """The cluster as its administrator sees it, the service, and the certificates of clients."""

    cluster: Cluster
    plane: ControlPlane
    service: Service
    certificates: Certificates
    port: int
    reviews: Authority

    def laptop(self, user: str) -> Laptop:
        """Return the API server as a user with a certificate sees it."""
        return Laptop(self.plane, self.certificates.user(user))

    async def direct(self, path: str, certificate: str = "", **headers: str) -> Answer:
        """Ask the port of the service itself, with a client certificate or without one."""
        context = ssl.create_default_context(cafile=str(self.service.authority))
        if certificate:
            context.load_cert_chain(certificate)
        sent = {name.replace("_", "-"): headers[name] for name in headers}
        return await request("GET", f"https://127.0.0.1:{self.port}{path}", context, sent)


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("aggregation") / "certificates")


@pytest.fixture(scope="module")
def plane(
    assets: Path, tmp_path_factory: pytest.TempPathFactory, certificates: Certificates
) -> Iterator[ControlPlane]:
    folder = tmp_path_factory.mktemp("aggregation-plane")
    flags = certificates.flags()
    with own_control_plane.control_plane(assets, folder, api_server_flags=flags) as running:
        yield running


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def aggregation(
    plane: ControlPlane, certificates: Certificates, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Aggregation]:
    port = free_port()
    reviews = Authority(tmp_path_factory.mktemp("reviews") / "reviews")
    service = Service(
        tmp_path_factory.mktemp("aggregated-service"),
        plane.kubeconfig(SERVICE),
        aggregated_listen=f"127.0.0.1:{port}",
        tls_names=HOST,
        client_ca=reviews.file,
        webhook_failure_policy="Ignore",
    )
    async with AsyncExitStack() as stack:
        cluster = await stack.enter_async_context(_connected(plane, ADMIN))
        await own_control_plane.prepare(cluster)
        await grant(cluster, SERVICE, _rules(aggregation_cluster.RIGHTS), "aggregation")
        for team in ("team-a", "team-b"):
            await make_team(cluster, team)
        await register(cluster, port)
        await bound(cluster)
        service.start()
        stack.callback(service.kill)
        await asyncio.to_thread(service.wait_ready)
        await available(cluster)
        yield Aggregation(cluster, plane, service, certificates, port, reviews)


async def bound(cluster: Cluster) -> None:
    """Bound the writes of the service as the chart does."""
    account, policies = f"system:serviceaccount:{SPACE}:gpuledger", 0
    sets = ("cluster=e2e", "aggregatedAPI.enabled=true")
    for rendered in helm_chart.render(CHECKOUT, sets=sets, namespace=SPACE):
        kind, name = rendered.manifest["kind"], rendered.manifest["metadata"]["name"]
        if name == POLICY and kind in PLURALS:
            text = yaml.safe_load(rendered.text.replace(account, SERVICE))
            await cluster.must(
                "POST", f"/apis/admissionregistration.k8s.io/v1/{PLURALS[kind]}", text
            )
            policies += 1
    assert policies == 2


async def make_team(cluster: Cluster, name: str) -> None:
    """Make a namespace with a quota, and a Role for the user `reader-NAME`."""
    meta = {"metadata": {"name": name}}
    await cluster.must("POST", "/api/v1/namespaces", meta)
    quota = {"metadata": {"name": "gpus"}, "spec": {"hard": {f"limits.{MEMORY}": "8000"}}}
    await cluster.must("POST", f"/api/v1/namespaces/{name}/resourcequotas", quota)
    rules = [
        {
            "apiGroups": ["gpuledger.io", aggregation_cluster.GROUP],
            "resources": READS,
            "verbs": ["list"],
        },
        {
            "apiGroups": ["gpuledger.io", aggregation_cluster.GROUP],
            "resources": ["explain", "fit"],
            "verbs": ["create"],
        },
    ]
    roles = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{name}"
    named: dict[str, Any] = {"metadata": {"name": "gpuledger-reader"}}
    await cluster.must("POST", f"{roles}/roles", named | {"rules": rules})
    group = "rbac.authorization.k8s.io"
    binding = named | {
        "roleRef": {"apiGroup": group, "kind": "Role", "name": "gpuledger-reader"},
        "subjects": [{"apiGroup": group, "kind": "User", "name": f"reader-{name}"}],
    }
    await cluster.must("POST", f"{roles}/rolebindings", binding)
    await are_applied(cluster, f"reader-{name}", rules, name)


async def usage_of(aggregation: Aggregation, user: str, path: str) -> Answer:
    """Return the answer once the ledger has the quota of the namespace."""
    laptop = aggregation.laptop(user)
    return await eventually(
        lambda: laptop.ask(path),
        lambda answer: answer.status != 200 or bool(answer.body),
        within=SOON,
        what=f"{path} has rows",
    )


async def test_user_reads_own_namespace_by_certificate(aggregation: Aggregation) -> None:
    answer = await usage_of(aggregation, "reader-team-a", f"{TEAM_A}/usage")
    assert answer.status == 200
    rows: Any = answer.body
    assert [(row["namespace"], row["limit"]) for row in rows] == [("team-a", 8000)]
    laptop = aggregation.laptop("reader-team-a")
    for resource in READS:
        assert (await laptop.ask(f"{TEAM_A}/{resource}")).status == 200, resource
    assert (await laptop.ask(f"{TEAM_A}/usage?at=999999")).message.startswith("at: position")


async def test_user_reads_no_other_namespace_nor_all(aggregation: Aggregation) -> None:
    laptop = aggregation.laptop("reader-team-a")
    for path in (f"{ROOT}/namespaces/team-b", ROOT):
        answer = await laptop.ask(f"{path}/holders")
        assert answer.status == 403, answer
        assert 'cannot list resource "holders" in API group "query.gpuledger.io"' in answer.message
    assert (await laptop.ask(f"{TEAM_A}/usage?namespace=team-b")).status == 400
    assert (await laptop.ask(f"{TEAM_A}/usage?cluster=other")).status == 403


async def test_command_reads_with_a_kubeconfig(aggregation: Aggregation, tmp_path: Path) -> None:
    certificate = aggregation.certificates.user("reader-team-a")
    config = f"--kubeconfig={kubeconfig(aggregation.plane, certificate, tmp_path / 'config')}"
    status, output, complaint = await typed("usage", config, "--namespace=team-a")
    assert status == 0, complaint
    assert [row["namespace"] for row in json.loads(output)] == ["team-a"]
    status, output, complaint = await typed("usage", config, "--namespace=team-b")
    assert (status, output) == (4, ""), (status, complaint)
    manifest = tmp_path / "pod.json"
    manifest.write_text(json.dumps(pod("big", memory=9000)))
    status, output, complaint = await typed(
        "explain", config, "--namespace=team-a", f"--file={manifest}"
    )
    assert (status, json.loads(output)["allowed"]) == (4, False), (status, complaint)


async def test_impersonated_user_has_own_rights(aggregation: Aggregation) -> None:
    as_reader = aggregation.cluster.as_user("reader-team-a")
    assert (await as_reader.ask("GET", f"{TEAM_A}/usage")).status == 200
    assert (await as_reader.ask("GET", f"{ROOT}/namespaces/team-b/usage")).status == 403
    assert (await aggregation.cluster.ask("GET", f"{ROOT}/usage")).status == 200


async def test_explained_user_is_the_caller(aggregation: Aggregation) -> None:
    laptop = aggregation.laptop("reader-team-a")
    big = pod("big", memory=9000)
    answer = await laptop.ask(f"{TEAM_A}/explain", big, method="POST")
    assert (answer.status, answer.body["allowed"]) == (200, False), answer
    other = await laptop.ask(f"{ROOT}/namespaces/team-b/explain", big, method="POST")
    assert other.status == 403


async def test_forged_user_is_refused_without_the_proxy(aggregation: Aggregation) -> None:
    forged = {"X_Remote_User": "admin", "X_Remote_Group": "system:masters"}
    assert (await aggregation.direct(f"{ROOT}/usage", **forged)).status == 401
    other_name = aggregation.certificates.proxies.issue("another")
    assert (await aggregation.direct(f"{ROOT}/usage", other_name, **forged)).status == 401
    proxy = aggregation.certificates.proxies.issue(PROXY)
    assert (await aggregation.direct(f"{ROOT}/usage", proxy, **forged)).status == 200, "control"
    assert (await aggregation.direct(f"{ROOT}/usage", proxy, X_Remote_User="x")).status == 403
    for authority in (aggregation.certificates.users, aggregation.reviews):
        stranger = authority.issue(PROXY)
        with pytest.raises((aiohttp.ClientError, ConnectionError)):
            await aggregation.direct(f"{ROOT}/usage", stranger, **forged)


async def test_proxy_certificate_sends_no_reviews(aggregation: Aggregation) -> None:
    context = ssl.create_default_context(cafile=str(aggregation.service.authority))
    context.load_cert_chain(aggregation.certificates.proxy)
    url = f"https://{aggregation.service.address}/admission/validate"
    with pytest.raises((aiohttp.ClientError, ConnectionError)):
        await request("POST", url, context, {}, {})
    path, proxy = "/admission/validate", aggregation.certificates.proxy
    assert (await aggregation.direct(path, proxy, X_Remote_User="admin")).status == 404


async def test_added_and_removed_proxy_ca_is_followed(
    aggregation: Aggregation, tmp_path: Path
) -> None:
    cluster, key = aggregation.cluster, "requestheader-client-ca-file"
    published = (await cluster.must("GET", CONFIG_MAP))["data"][key]
    later = Authority(tmp_path / "later")
    certificate = later.issue(PROXY)
    both = published + later.pem

    async def status() -> int:
        try:
            masters = {"X_Remote_User": "admin", "X_Remote_Group": "system:masters"}
            return (await aggregation.direct(f"{ROOT}/usage", certificate, **masters)).status
        except (aiohttp.ClientError, ConnectionError):
            return 0

    assert await status() == 0
    await cluster.patch(CONFIG_MAP, {"data": {key: both}})
    await eventually(status, lambda seen: seen == 200, within=SOON, what="the added CA is trusted")
    await cluster.patch(CONFIG_MAP, {"data": {key: published}})
    await eventually(status, lambda seen: seen == 0, within=SOON, what="the removed CA is not")

    async def proxied() -> int:
        return (await cluster.ask("GET", f"{ROOT}/usage")).status

    # For a second after a removal, until that CA's connections have ended, the answer is 503.
    await eventually(proxied, lambda seen: seen == 200, within=SOON, what="the proxy is trusted")


async def test_service_writes_only_the_ca_of_its_api_service(aggregation: Aggregation) -> None:
    admin, path = aggregation.cluster, f"{aggregation_cluster.API_SERVICE}?dryRun=All"
    as_service = admin.as_user(SERVICE)
    other = {"spec": {"service": {"namespace": "x", "name": "x", "port": 443}}}
    await eventually(
        lambda: as_service.patch(path, other),
        lambda answer: answer.status == 403,
        within=SOON,
        what="the policy is in effect",
    )
    assert (await as_service.patch(path, {"spec": {"caBundle": ""}})).status == 200
    assert (await admin.patch(path, other)).status == 200, "control: others may"


async def test_discovery_names_the_resources(aggregation: Aggregation) -> None:
    listed = await aggregation.cluster.must("GET", ROOT)
    names = {entry["name"] for entry in listed["resources"]}
    assert {"usage", "holders", "cards", "explain"} <= names


@pytest.mark.long
async def test_namespaces_are_deleted_again_after_an_outage(aggregation: Aggregation) -> None:
    cluster, service = aggregation.cluster, aggregation.service
    path = "/api/v1/namespaces/doomed"
    await cluster.must("POST", "/api/v1/namespaces", {"metadata": {"name": "doomed"}})

    async def condition() -> str:
        answer = await cluster.ask("GET", path)
        if answer.status == 404:
            return "gone"
        assert answer.status == 200, answer
        listed = answer.body.get("status", {}).get("conditions", [])
        failing = [each["reason"] for each in listed if each["status"] == "True"]
        return ",".join(failing)

    began = time.monotonic()
    service.stop()
    await available(cluster, wanted="False")
    down = time.monotonic()
    await cluster.must("DELETE", path)
    await eventually(condition, lambda seen: "DiscoveryFailed" in seen, within=SOON, what="stuck")
    stuck = time.monotonic()
    await asyncio.sleep(5)
    assert (await cluster.ask("GET", path)).status == 200, "it stays while the API is away"
    await service.run_again()
    again = time.monotonic()
    await available(cluster)
    back = time.monotonic()
    await eventually(condition, lambda seen: seen == "gone", within=120, what="it is deleted")
    gone = time.monotonic()
    times = (down - began, stuck - down, back - again, gone - back)
    print("seconds until unavailable, stuck, available again, deleted:", times)


async def test_uninstall_removes_the_api_service(aggregation: Aggregation) -> None:
    kubeconfig = f"--kubeconfig={aggregation.plane.kubeconfig(ADMIN)}"
    status, output, complaint = await typed(
        "uninstall", kubeconfig, f"--namespace={SPACE}", "--yes"
    )
    assert "v1.query.gpuledger.io" in output, (status, output, complaint)
    assert (await aggregation.cluster.ask("GET", aggregation_cluster.API_SERVICE)).status == 404
