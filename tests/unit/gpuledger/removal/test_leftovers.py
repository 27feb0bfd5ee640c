"""The things that an uninstall finds: quotas, pods, nodes and webhooks from prepared lists."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Final

import pytest
from support.fakes.apiserver import client_on_loopback
from support.fakes.canned_apiserver import CannedApiServer, failure

from gpuledger.check.registered_webhooks import RegisteredInstallation
from gpuledger.removal.api_service_leftover import find_api_service
from gpuledger.removal.node_leftovers import find_nodes
from gpuledger.removal.pod_leftovers import find_pods
from gpuledger.removal.quota_leftovers import ZeroQuotas, find_quotas, find_statuses
from gpuledger.removal.removal_scope import RemovalScope
from gpuledger.removal.removal_tasks import (
    NOT_TRIED,
    UNANSWERED_MAX,
    RemovalTask,
    RemovalWrites,
    RemovedThing,
)
from gpuledger.removal.webhook_leftovers import find_webhooks
from ledger.kube.api.api_resources import POLICIES, UNIVERSE_QUOTAS, Resource
from ledger.kube.api.cluster_errors import ClusterUnavailable
from ledger.kube.client.api_client import ApiClient
from ledger.kube.requests.demand_rules import DemandRules

QUOTAS: Final = "/api/v1/resourcequotas"
RULES: Final = DemandRules(managed=("cpu",))
LIST: Final = {"resourceVersion": "1"}


@pytest.fixture
def answers() -> CannedApiServer:
    return CannedApiServer()


@pytest.fixture
async def client(answers: CannedApiServer, tmp_path: Path) -> AsyncIterator[ApiClient]:
    async with client_on_loopback(answers.app(), tmp_path) as connected:
        yield connected


def listed(*items: dict[str, Any]) -> dict[str, Any]:
    return {"metadata": LIST, "items": list(items)}


def quota(name: str, hard: dict[str, str], **meta: Any) -> dict[str, Any]:
    metadata = {"name": name, "namespace": "team", "resourceVersion": "7", "uid": "u", **meta}
    return {"metadata": metadata, "spec": {"hard": hard}, "status": {}}


def shown(tasks: list[RemovalTask]) -> list[tuple[str, str]]:
    return [(task.thing.name, task.thing.action) for task in tasks]


@pytest.mark.parametrize(
    ("service", "deleted"),
    [
        ({"namespace": "gpuledger-system", "name": "gpuledger"}, True),
        ({"namespace": "elsewhere", "name": "gpuledger"}, False),
        ({"namespace": "gpuledger-system", "name": "another"}, False),
        (None, False),
    ],
)
async def test_api_service_of_the_installation_is_deleted(
    answers: CannedApiServer, client: ApiClient, service: dict[str, str] | None, deleted: bool
) -> None:
    scope = RemovalScope(
        namespace="gpuledger-system",
        agents="",
        name="gpuledger",
        rules=RULES,
        zero=ZeroQuotas.REPORT,
    )
    path = "/apis/apiregistration.k8s.io/v1/apiservices/v1.query.gpuledger.io"
    assert await find_api_service(client, scope) == []
    answers.by_path[path] = {"metadata": {"uid": "u"}, "spec": {"service": service}}
    tasks = await find_api_service(client, scope)
    assert [task.thing.name for task in tasks] == ["v1.query.gpuledger.io"] * deleted


@pytest.mark.parametrize(
    ("key", "blocks"),
    [
        ("requests.nvidia.com/gpu", True),
        ("requests.nvidia.com/gpumem", True),
        ("requests.cpu", True),
        ("limits.nvidia.com/gpu", False),
        ("nvidia.com/gpu", False),
        ("requests.example.com/other", False),
        ("pods", False),
    ],
)
async def test_zero_blocks_where_kubernetes_enforces_the_key(
    answers: CannedApiServer, client: ApiClient, key: str, blocks: bool
) -> None:
    answers.by_path[QUOTAS] = listed(quota("q", {key: "0"}))
    tasks = await find_quotas(client, RULES, ZeroQuotas.REPORT)
    assert shown(tasks) == ([("team/q", f"Kubernetes enforces {key}=0")] if blocks else [])
    assert all(task.undo is None for task in tasks)


async def test_zero_is_removed_and_other_keys_stay(
    answers: CannedApiServer, client: ApiClient
) -> None:
    hard = {"requests.nvidia.com/gpu": "0", "requests.nvidia.com/gpumem": "5", "pods": "9"}
    answers.by_path[QUOTAS] = listed(quota("q", hard))
    answers.by_path["/api/v1/namespaces/team/resourcequotas/q"] = {}
    tasks = await find_quotas(client, RULES, ZeroQuotas.DELETE)
    assert await RemovalWrites().run(tasks) == {}
    assert answers.asked[-1].body == {"spec": {"hard": {"requests.nvidia.com/gpu": None}}}


MANAGED: Final = [{"manager": "gpuledger", "fieldsV1": {"f:spec": {}}}]


EDITED: Final = {"manager": "kubectl-edit", "fieldsV1": {"f:spec": {}}}


@pytest.mark.parametrize(
    ("value", "managers", "writer"),
    [
        ("true", [*MANAGED, EDITED], "kubectl-edit"),
        ("true", [EDITED], "kubectl-edit"),
        ("false", [], "a user"),
    ],
)
async def test_default_quotas_that_others_wrote_lose_only_the_label(
    answers: CannedApiServer,
    client: ApiClient,
    value: str,
    managers: list[dict[str, Any]],
    writer: str,
) -> None:
    label = "gpuledger.io/default-quota"
    meta = {"labels": {label: value}, "managedFields": managers}
    answers.by_path[QUOTAS] = listed(quota("q", {"cpu": "9"}, **meta))
    answers.by_path["/api/v1/namespaces/team/resourcequotas/q"] = {}
    tasks = await find_quotas(client, RULES, ZeroQuotas.REPORT)
    assert shown(tasks) == [("team/q", f"remove the label {label}; the limits of {writer} stay")]
    assert await RemovalWrites().run(tasks) == {}
    assert answers.asked[-1].body == {"metadata": {"labels": {label: None}}}


@pytest.mark.parametrize(
    ("meta", "ours"),
    [
        ({"labels": {"gpuledger.io/default-quota": "true"}}, True),
        ({"labels": {"gpuledger.io/default-quota": "true"}, "managedFields": MANAGED}, True),
        ({"managedFields": MANAGED}, True),
        ({"managedFields": [*MANAGED, EDITED]}, False),
        ({"managedFields": [MANAGED[0] | {"subresource": "status"}]}, False),
        ({"managedFields": [{"manager": "kubectl", "fieldsV1": {"f:spec": {}}}]}, False),
        ({}, False),
    ],
)
async def test_quotas_that_the_service_made_are_deleted(
    answers: CannedApiServer, client: ApiClient, meta: dict[str, Any], ours: bool
) -> None:
    answers.by_path[QUOTAS] = listed(quota("q", {"limits.nvidia.com/gpu": "0"}, **meta))
    tasks = await find_quotas(client, RULES, ZeroQuotas.REPORT)
    assert shown(tasks) == ([("team/q", "delete the default quota")] if ours else [])


async def test_written_usage_is_removed_and_that_of_kubernetes_stays(
    answers: CannedApiServer, client: ApiClient
) -> None:
    written = quota("q", {})
    written["status"] = {"used": {"limits.nvidia.com/gpu": "1", "limits.cpu": "2", "pods": "1"}}
    answers.by_path[QUOTAS] = listed(written)
    answers.by_path["/api/v1/namespaces/team/resourcequotas/q/status"] = {}
    await RemovalWrites().run(await find_quotas(client, RULES, ZeroQuotas.REPORT))
    assert answers.asked[-1].body == {"status": {"used": {"limits.nvidia.com/gpu": None}}}


async def test_gates_and_marks_of_pods_are_found(
    answers: CannedApiServer, client: ApiClient
) -> None:
    notes = {"gpuledger.io/stamp": "s", "hami.io/vgpu-node": "n", "app": "x"}
    meta = {"name": "p", "namespace": "team", "resourceVersion": "7", "annotations": notes}
    gates = [{"name": "gpuledger.io/quota"}, {"name": "example.com/other"}]
    plain = {"metadata": {"name": "q", "namespace": "team", "resourceVersion": "8"}}
    pod = {"metadata": meta, "spec": {"schedulingGates": gates}}
    answers.by_path["/api/v1/pods"] = listed(pod, plain)
    answers.by_path["/api/v1/namespaces/team/pods/p"] = {}
    assert await RemovalWrites().run(await find_pods(client)) == {}
    bodies = [request.body for request in answers.asked if request.method == "PATCH"]
    opened = [{"$patch": "delete", "name": "gpuledger.io/quota"}]
    assert bodies == [
        {"spec": {"schedulingGates": opened}},
        {"metadata": {"annotations": {"gpuledger.io/stamp": None}}},
    ]


async def test_cards_of_other_keepers_stay(answers: CannedApiServer, client: ApiClient) -> None:
    register = "hami.io/node-nvidia-register"
    theirs = {"gpuledger.io/keeper": "hami", register: "[]"}
    nodes = [
        {"metadata": {"name": "a", "annotations": {register: "[]"}}},
        {"metadata": {"name": "b", "annotations": theirs}},
        {"metadata": {"name": "c", "annotations": theirs | {"gpuledger.io/keeper": "gpuledger"}}},
    ]
    answers.by_path["/api/v1/nodes"] = listed(*nodes)
    assert shown(await find_nodes(client)) == [
        ("b", "remove gpuledger.io/keeper"),
        ("c", f"remove gpuledger.io/keeper, {register}"),
    ]


@pytest.mark.parametrize("resource", [UNIVERSE_QUOTAS, POLICIES])
async def test_written_statuses_of_our_own_kinds_are_cleared(
    answers: CannedApiServer, client: ApiClient, resource: Resource
) -> None:
    written = {"metadata": {"name": "a"}, "status": {"conditions": []}}
    answers.by_path[resource.collection()] = listed(written, {"metadata": {"name": "b"}})
    answers.by_path[resource.object("", "a") + "/status"] = {}
    tasks = await find_statuses(client, resource)
    assert shown(tasks) == [("a", "clear the status")]
    assert tasks[0].undo is not None
    await tasks[0].undo()
    assert answers.asked[-1].body == [{"op": "add", "path": "/status", "value": {}}]


async def test_absent_definition_has_no_statuses(
    answers: CannedApiServer, client: ApiClient
) -> None:
    assert await find_statuses(client, UNIVERSE_QUOTAS) == []


async def test_only_webhooks_of_the_release_are_removed(
    answers: CannedApiServer, client: ApiClient
) -> None:
    def configuration(name: str, webhook: str) -> dict[str, Any]:
        return {"metadata": {"name": name}, "webhooks": [{"name": webhook}]}

    for kind in ("mutating", "validating"):
        path = f"/apis/admissionregistration.k8s.io/v1/{kind}webhookconfigurations"
        answers.by_path[path] = listed(
            configuration("gpuledger", "pods.validate.gpuledger.io"),
            configuration("east-gpuledger", "pods.validate.gpuledger.io"),
            configuration("vgpu", "vgpu.hami.io"),
        )
    scope = RemovalScope(
        namespace="gpu", agents="nodes", name="gpuledger", rules=RULES, zero=ZeroQuotas.REPORT
    )
    webhooks = await find_webhooks(client, scope)
    assert [task.thing.name for task in webhooks.tasks] == ["gpuledger", "gpuledger"]
    assert webhooks.others == [RegisteredInstallation("east-gpuledger", "")]


async def test_failed_write_is_a_problem_and_an_absent_object_is_none(
    answers: CannedApiServer, client: ApiClient
) -> None:
    answers.by_path[QUOTAS] = listed(
        quota("a", {"requests.cpu": "0"}), quota("b", {"requests.cpu": "0"})
    )
    base = "/api/v1/namespaces/team/resourcequotas"
    answers.by_path[f"{base}/a"] = failure(403, "Forbidden", "may not patch")
    answers.by_path[f"{base}/b"] = failure(404, "NotFound", name="b")
    problems = await RemovalWrites().run(await find_quotas(client, RULES, ZeroQuotas.DELETE))
    assert list(problems) == [RemovedThing("resourcequota", "team/a", "remove requests.cpu=0")]


async def test_writes_without_an_answer_end_a_round() -> None:
    tried = []

    async def undo() -> None:
        tried.append(1)
        raise ClusterUnavailable("no answer")

    things = [RemovedThing("pod", f"p{number}", "mark") for number in range(3 * UNANSWERED_MAX)]
    problems = await RemovalWrites().run([RemovalTask(thing, undo) for thing in things])
    assert len(tried) == UNANSWERED_MAX
    assert list(problems.values()).count(NOT_TRIED) == 2 * UNANSWERED_MAX
