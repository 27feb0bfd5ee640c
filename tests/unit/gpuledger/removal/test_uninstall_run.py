"""An uninstall: the installation that it removes, what of others it leaves alone, and its end."""

import asyncio
import copy
import itertools
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final

import pytest
from support.fakes.apiserver import client_on_loopback
from support.fakes.canned_apiserver import failure
from support.fakes.stored_apiserver import StoredApiServer

from gpuledger.cli.exit_codes import CommandError, Exit
from gpuledger.removal import uninstall_run
from gpuledger.removal.quota_leftovers import ZeroQuotas
from gpuledger.removal.removal_scope import RemovalScope
from gpuledger.removal.removal_tasks import RemovedThing
from gpuledger.removal.uninstall_run import RemovalReport
from ledger.kube.client.api_client import ApiClient
from ledger.kube.requests.demand_rules import DemandRules

WEBHOOKS: Final = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations"
SPACES: Final = "/api/v1/namespaces"
SYSTEM: Final = "gpu"
AGENTS: Final = "gpuledger-nodes"
DEPLOYMENTS: Final = f"/apis/apps/v1/namespaces/{SYSTEM}/deployments"
SETS: Final = "/apis/apps/v1/namespaces/{}/daemonsets"
PAST: Final = "2026-01-01T00:00:00Z"


class VirtualClock:
    """The time of a run: a sleep only advances it, and then calls `slept` with its seconds."""

    def __init__(self) -> None:
        self.now = 0.0
        self.slept: Callable[[float], object] = lambda _seconds: None

    def time(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        self.now += seconds
        self.slept(seconds)
        await asyncio.sleep(0)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> VirtualClock:
    clock = VirtualClock()
    virtual = SimpleNamespace(sleep=clock.sleep, get_running_loop=lambda: clock)
    monkeypatch.setattr(uninstall_run, "asyncio", virtual)
    return clock


@pytest.fixture
def stored() -> StoredApiServer:
    return StoredApiServer()


@pytest.fixture
async def client(stored: StoredApiServer, tmp_path: Path) -> AsyncIterator[ApiClient]:
    async with client_on_loopback(stored.app(), tmp_path) as connected:
        yield connected


async def removed(client: ApiClient, namespace: str = SYSTEM) -> RemovalReport:
    scope = RemovalScope(
        namespace=namespace,
        agents=AGENTS,
        name="gpuledger",
        rules=DemandRules(),
        zero=ZeroQuotas.REPORT,
    )
    return await uninstall_run.remove(client, scope)


def labels(component: str) -> dict[str, Any]:
    named = {"app.kubernetes.io/name": "gpuledger", "app.kubernetes.io/component": component}
    return {"labels": named}


def register(stored: StoredApiServer, name: str = "gpuledger", namespace: str = SYSTEM) -> None:
    called = {"service": {"namespace": namespace, "name": "gpuledger"}}
    entry = {"name": "pods.validate.gpuledger.io", "clientConfig": called}
    stored.put(WEBHOOKS, name, webhooks=[entry])


def run_part(stored: StoredApiServer, space: str, component: str, **metadata: Any) -> str:
    """Store a running pod of a part; return its path."""
    return stored.put(
        f"{SPACES}/{space}/pods",
        f"{component}-1",
        metadata=labels(component) | metadata,
        spec={"nodeName": "lost"},
        status={"phase": "Running"},
    )


def names(things: list[RemovedThing]) -> list[tuple[str, str]]:
    return [(thing.kind, thing.name) for thing in things]


async def test_an_installation_in_another_namespace_is_refused_by_its_name(
    stored: StoredApiServer, client: ApiClient, clock: VirtualClock
) -> None:
    register(stored)
    with pytest.raises(CommandError, match=f"--namespace {SYSTEM}") as refused:
        await removed(client, "gpuledger-system")
    assert refused.value.status is Exit.USAGE
    assert {method for method, _ in stored.asked} == {"GET"}


async def test_webhooks_that_a_hidden_service_registers_again_are_left(
    stored: StoredApiServer, client: ApiClient, clock: VirtualClock
) -> None:
    register(stored)
    clock.slept = lambda _seconds: register(stored)
    report = await removed(client)
    assert names(report.left) == [("validatingwebhookconfiguration", "gpuledger")]


async def test_a_stopped_service_cannot_register_again_so_no_time_is_spent(
    stored: StoredApiServer, client: ApiClient, clock: VirtualClock
) -> None:
    register(stored)
    service = stored.put(DEPLOYMENTS, "gpuledger", metadata=labels("service"), spec={"replicas": 2})
    report = await removed(client)
    assert (report.left, clock.now) == ([], 0.0)
    assert stored.objects[service]["spec"] == {"replicas": 0}


async def test_a_tenants_objects_with_our_labels_are_reported_and_stay(
    stored: StoredApiServer, client: ApiClient, clock: VirtualClock
) -> None:
    theirs = stored.put(SETS.format("tenant"), "agent", metadata=labels("agent"))
    run_part(stored, "tenant", "agent")
    ours = stored.put(SETS.format(AGENTS), "gpuledger-agent", metadata=labels("agent"))
    report = await removed(client)
    assert (report.left, clock.now) == ([], 0.0)
    assert names(report.removed) == [("daemonset", f"{AGENTS}/gpuledger-agent")]
    assert names(report.reported) == [("daemonset", "tenant/agent")]
    assert "--agent-namespace tenant" in report.reported[0].problem
    assert "spec" not in stored.objects[theirs]
    assert "spec" in stored.objects[ours]


async def test_a_pod_of_a_lost_node_is_awaited_once_and_reported(
    stored: StoredApiServer, client: ApiClient, clock: VirtualClock
) -> None:
    run_part(stored, AGENTS, "agent", deletionTimestamp=PAST)
    report = await removed(client)
    assert (report.left, names(report.reported)) == ([], [("pod", f"{AGENTS}/agent-1")])
    assert "--force" in report.reported[0].problem
    assert clock.now == uninstall_run.STOP_SECONDS


async def test_a_pod_that_is_not_deleted_is_left_and_awaited_once(
    stored: StoredApiServer, client: ApiClient, clock: VirtualClock
) -> None:
    run_part(stored, SYSTEM, "service")
    report = await removed(client)
    assert names(report.left) == [("pod", f"{SYSTEM}/service-1")]
    pauses = uninstall_run.ROUND_PAUSE_SECONDS * (2 ** (uninstall_run.ROUNDS_MAX - 1) - 1)
    assert clock.now == uninstall_run.STOP_SECONDS + pauses


async def test_a_refused_list_is_left_and_the_others_are_removed(
    stored: StoredApiServer, client: ApiClient, clock: VirtualClock
) -> None:
    register(stored)
    stored.put(DEPLOYMENTS, "gpuledger", metadata=labels("service"), spec={"replicas": 0})
    stored.failing["GET", "/api/v1/nodes"] = failure(403, "Forbidden", "may not list nodes")
    report = await removed(client)
    assert names(report.removed) == [("validatingwebhookconfiguration", "gpuledger")]
    assert names(report.left) == [("list", "nodes")]
    assert "gpuledger-uninstall" in report.left[0].problem


async def test_an_api_server_that_fails_meanwhile_is_asked_again(
    stored: StoredApiServer, client: ApiClient, clock: VirtualClock
) -> None:
    register(stored)
    stored.put(DEPLOYMENTS, "gpuledger", metadata=labels("service"), spec={"replicas": 0})
    away = ("GET", "/api")
    clock.slept = lambda _seconds: stored.failing.pop(away, None)
    stored.written = lambda _method, _path: stored.failing.update({away: failure(503, "Away")})
    report = await removed(client)
    assert names(report.removed) == [("validatingwebhookconfiguration", "gpuledger")]
    assert report.left == []


async def test_after_one_list_without_answer_no_other_is_asked_for(
    stored: StoredApiServer, client: ApiClient, clock: VirtualClock
) -> None:
    stored.failing["GET", "/apis/apps"] = failure(503, "Away")
    report = await removed(client)
    assert names(report.left) == [("list", "deployments and daemonsets")]
    assert sum(path.startswith("/apis/apps") for _, path in stored.asked) == (
        uninstall_run.ROUNDS_MAX + 1
    )
    assert all(path.startswith("/apis") for _, path in stored.asked)


async def test_labels_by_which_controllers_select_stay(
    stored: StoredApiServer, client: ApiClient, clock: VirtualClock
) -> None:
    written = {"gpuledger.io/team": "a", "gpuledger.io/bind-fence": "1"}
    pod = stored.put(f"{SPACES}/tenant/pods", "rs-1", metadata={"labels": written})
    node = stored.put("/api/v1/nodes", "n", metadata={"labels": {"gpuledger.io/pool": "a"}})
    assert (await removed(client)).left == []
    assert stored.objects[pod]["metadata"]["labels"] == written
    assert stored.objects[node]["metadata"]["labels"] == {"gpuledger.io/pool": "a"}


@pytest.mark.parametrize(
    "written",
    [
        {"spec": {"schedulingGates": [{"name": "gpuledger.io/quota"}]}},
        {"metadata": {"annotations": {"gpuledger.io/stamp": "s"}}},
    ],
)
async def test_what_a_tenant_writes_into_each_new_pod_is_reported(
    stored: StoredApiServer, client: ApiClient, clock: VirtualClock, written: dict[str, Any]
) -> None:
    count = itertools.count()

    def create() -> str:
        return stored.put(f"{SPACES}/tenant/pods", f"rs-{next(count)}", **copy.deepcopy(written))

    def create_again(_method: str, path: str) -> None:
        if "/pods/" in path:
            create()

    first = create()
    stored.written = create_again
    report = await removed(client)
    assert names(report.left) == []
    assert [thing.problem for thing in report.reported] == [uninstall_run.OF_ITS_OWNER]
    assert len(report.removed) == uninstall_run.ROUNDS_MAX
    assert stored.objects[first] != written


async def test_a_gate_that_is_there_beside_webhooks_is_left(
    stored: StoredApiServer, client: ApiClient, clock: VirtualClock
) -> None:
    register(stored)

    def return_both(_: object) -> None:
        register(stored)
        gates = [{"name": "gpuledger.io/quota"}]
        stored.put(f"{SPACES}/tenant/pods", "waiting", spec={"schedulingGates": gates})

    clock.slept = return_both
    left = names((await removed(client)).left)
    assert left == [
        ("validatingwebhookconfiguration", "gpuledger"),
        ("pod", "tenant/waiting"),
    ]


async def test_of_the_check_only_the_pod_of_helm_test_is_deleted(
    stored: StoredApiServer, client: ApiClient, clock: VirtualClock
) -> None:
    """The Job may delete this one alone; the others end with their own Job."""
    pods = f"{SPACES}/{SYSTEM}/pods"
    stored.put(pods, "gpuledger-check", metadata=labels("check"))
    failed = stored.put(pods, "gpuledger-before-install-x7k2p", metadata=labels("check"))
    report = await removed(client)
    assert (report.left, names(report.removed)) == ([], [("pod", f"{SYSTEM}/gpuledger-check")])
    assert failed in stored.objects


async def test_another_installation_is_named_with_the_pods_that_wait_for_it(
    stored: StoredApiServer, client: ApiClient, clock: VirtualClock
) -> None:
    register(stored, "east-gpuledger", "east")
    gates = [{"name": "gpuledger.io/quota"}]
    stored.put(f"{SPACES}/tenant/pods", "waiting", spec={"schedulingGates": gates})
    report = await removed(client)
    assert (report.removed, report.left) == ([], [])
    [kept] = report.reported
    assert "1 waiting pods" in kept.problem
    assert kept.problem.endswith("--full-name east-gpuledger --namespace east")
