"""HAMi's accounts are found by labels, images and rights, over real HTTP."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from support.fakes.apiserver import client_on_loopback

from ledger.kube.api.cluster_errors import ClusterError
from ledger.kube.client.access_review import KubernetesReviewer
from ledger.kube.client.api_client import ApiClient
from ledger.kube.cluster import hami_accounts

LABELLED = {"app.kubernetes.io/component": "hami-scheduler"}
OTHER = "docker.io/library/busybox:1.36"


def workload(
    name: str,
    namespace: str = "gpu",
    *,
    account: str = "a",
    image: str = OTHER,
    labels: dict[str, str] | None = None,
    outside: dict[str, str] | None = None,
    command: list[str] | None = None,
) -> dict[str, Any]:
    """Return a workload; `labels` are its pods', `outside` its own."""
    spec = {
        "serviceAccountName": account,
        "containers": [{"image": OTHER}, {"image": image, "command": command}],
    }
    return {
        "metadata": {"name": name, "namespace": namespace, "labels": outside},
        "spec": {"template": {"metadata": {"labels": labels}, "spec": spec}},
    }


class Server:
    """Lists workloads, and lets accounts patch as `rights` has it."""

    def __init__(self) -> None:
        self.deployments: list[Any] = []
        self.daemonsets: list[Any] = []
        self.rights: dict[str, set[str]] = {}
        self.asked: list[Any] = []
        self.status = 201

    async def list(self, request: web.Request) -> web.Response:
        items = getattr(self, request.path.rpartition("/")[2])
        return web.json_response({"metadata": {"resourceVersion": "7"}, "items": items})

    async def review(self, request: web.Request) -> web.Response:
        spec = (await request.json())["spec"]
        self.asked.append(spec)
        wanted = spec["resourceAttributes"]
        everywhere = (wanted["verb"], wanted["group"], wanted["namespace"]) == ("patch", "", "")
        may = everywhere and wanted["resource"] in self.rights.get(spec["user"], ())
        return web.json_response({"status": {"allowed": may}}, status=self.status)


@pytest.fixture
def server() -> Server:
    return Server()


@pytest.fixture
async def client(server: Server, tmp_path: Path) -> AsyncIterator[ApiClient]:
    app = web.Application()
    app.router.add_get("/apis/apps/v1/deployments", server.list)
    app.router.add_get("/apis/apps/v1/daemonsets", server.list)
    app.router.add_post("/apis/authorization.k8s.io/v1/subjectaccessreviews", server.review)
    async with client_on_loopback(app, tmp_path) as connected:
        yield connected


def user(namespace: str, account: str) -> str:
    return f"system:serviceaccount:{namespace}:{account}"


@pytest.mark.parametrize(
    "daemonset",
    [
        workload("x", labels=LABELLED),
        workload("x", outside=LABELLED),
        workload("x", labels={"app.kubernetes.io/component": "hami-device-plugin"}),
        workload("x", labels={"app.kubernetes.io/component": "hami-ascend-device-plugin"}),
        workload("x", image="projecthami/hami:v2.10.0"),
        workload("x", image="registry.example:5000/mirror/projecthami/hami@sha256:0"),
        workload("x", image="4pdosc/k8s-vdevice:v2.3"),
    ],
)
async def test_hami_is_known_by_labels_and_by_images(
    server: Server, client: ApiClient, daemonset: Any
) -> None:
    server.daemonsets = [daemonset]
    server.rights = {user("gpu", "a"): {"pods", "nodes"}}
    accounts = await hami_accounts.find_accounts(client)
    assert accounts.proven == (hami_accounts.HamiAccount(user("gpu", "a"), "DaemonSet gpu/x"),)
    assert server.asked[0]["groups"] == [
        "system:serviceaccounts",
        "system:serviceaccounts:gpu",
        "system:authenticated",
    ]


@pytest.mark.parametrize(
    "other",
    [
        workload("x"),
        workload("x", image="projecthami/hami-webui-fe-oss:v1"),
        workload("x", image="example/bahami:v1"),
        workload("x", labels={"app.kubernetes.io/component": "hami-webui"}),
    ],
)
async def test_other_software_than_hami_is_not_asked_about(
    server: Server, client: ApiClient, other: Any
) -> None:
    server.deployments = [other]
    assert await hami_accounts.find_accounts(client) == hami_accounts.HamiAccounts()
    assert server.asked == []


@pytest.mark.parametrize("rights", [set(), {"pods"}, {"nodes"}])
async def test_an_account_without_hamis_rights_is_not_proven(
    server: Server, client: ApiClient, rights: set[str]
) -> None:
    server.deployments = [workload("copy", "team", account="", labels=LABELLED)]
    server.rights = {user("team", "default"): rights}
    accounts = await hami_accounts.find_accounts(client)
    copied = hami_accounts.HamiAccount(user("team", "default"), "Deployment team/copy")
    assert (accounts.proven, accounts.unproven) == ((), (copied,))


async def test_many_copies_in_a_namespace_do_not_hide_hami(
    server: Server, client: ApiClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hami_accounts, "ACCOUNTS_MAX", 40)
    server.deployments = [
        workload(f"copy-{at}", "a-team", account=f"a{at}", labels=LABELLED) for at in range(100)
    ]
    server.daemonsets = [workload("real", "z", labels=LABELLED)]
    server.rights = {user("z", "a"): {"pods", "nodes"}}
    accounts = await hami_accounts.find_accounts(client)
    assert [account.user for account in accounts.proven] == [user("z", "a")]
    assert len(accounts.unproven) == hami_accounts.UNPROVEN_MAX
    assert accounts.unproven_more == 39 - hami_accounts.UNPROVEN_MAX
    assert accounts.unasked == 61


async def test_an_api_server_that_answers_no_review_proves_nothing(
    server: Server, client: ApiClient
) -> None:
    server.deployments = [workload("x", account=f"a{at}", labels=LABELLED) for at in range(9)]
    server.status = 403
    with pytest.raises(ConnectionError, match="403"):
        await hami_accounts.find_accounts(client)


async def test_a_search_ends_at_its_deadline(
    server: Server, client: ApiClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hami_accounts, "FIND_SECONDS", 0.0)
    with pytest.raises(ClusterError, match="not found within 0 s"):
        await hami_accounts.find_accounts(client)


async def test_the_scheduler_that_is_run_is_named(server: Server, client: ApiClient) -> None:
    command = ["scheduler", "--http_bind=0.0.0.0:443", "--scheduler-name=theirs"]
    server.deployments = [
        workload("other", labels=LABELLED),
        workload("scheduler", labels=LABELLED, command=command),
    ]
    server.rights = {user("gpu", "a"): {"pods", "nodes"}}
    [account] = (await hami_accounts.find_accounts(client)).proven
    assert (account.workload, account.scheduler) == ("Deployment gpu/scheduler", "theirs")


@pytest.mark.parametrize("name", ["ada", "system:serviceaccount:gpu", "system:serviceaccount::a"])
async def test_only_service_accounts_are_asked_about(
    server: Server, client: ApiClient, name: str
) -> None:
    server.rights = {name: {"pods", "nodes"}}
    assert not await hami_accounts.may_allocate(KubernetesReviewer(client), name)
    assert server.asked == []
