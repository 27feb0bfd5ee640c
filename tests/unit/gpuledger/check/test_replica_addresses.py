"""The replicas behind a registered Service: their addresses, and the name in their certificate."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Final

import pytest
from support.fakes.apiserver import client_on_loopback
from support.fakes.canned_apiserver import CannedApiServer, failure

from gpuledger.check.api_questions import ApiQuestions
from gpuledger.check.install_findings import Unasked
from gpuledger.check.registered_webhooks import CalledService
from gpuledger.check.replica_addresses import addresses_of
from gpuledger.check.replica_reports import ReplicaAddress

SERVICE: Final = CalledService("gpu", "east-gpuledger")
SERVICE_PATH: Final = "/api/v1/namespaces/gpu/services/east-gpuledger"
PODS_PATH: Final = "/api/v1/namespaces/gpu/pods"
NAMED: Final = "east-gpuledger.gpu.svc"


def pod(pod_name: str, address: str, phase: str = "Running", **port: Any) -> dict[str, Any]:
    """Return a pod with an address and one port."""
    return {
        "metadata": {"name": pod_name},
        "spec": {"containers": [{"ports": [port]}]},
        "status": {"podIP": address, "phase": phase},
    }


@pytest.fixture
def answers() -> CannedApiServer:
    canned = CannedApiServer()
    selector = {"app.kubernetes.io/name": "east-gpuledger", "tier": "a"}
    canned.by_path[SERVICE_PATH] = {"spec": {"selector": selector}}
    return canned


@pytest.fixture
async def questions(answers: CannedApiServer, tmp_path: Path) -> AsyncIterator[ApiQuestions]:
    async with client_on_loopback(answers.app(), tmp_path) as client:
        yield ApiQuestions(client)


async def test_running_pods_of_the_selector_are_the_replicas(
    answers: CannedApiServer, questions: ApiQuestions
) -> None:
    answers.by_path[PODS_PATH] = {
        "items": [
            pod("a", "10.0.0.1", name="https", containerPort=9443),
            pod("b", "fd00::2", name="metrics", containerPort=1),
            pod("c", "", phase="Pending"),
            pod("d", "10.0.0.4", phase="Succeeded"),
        ]
    }
    assert await addresses_of(questions, SERVICE) == [
        ReplicaAddress("a", "https://10.0.0.1:9443", NAMED),
        ReplicaAddress("b", "https://[fd00::2]:8443", NAMED),
    ]
    selector = answers.asked[-1].query["labelSelector"]
    assert selector == "app.kubernetes.io/name=east-gpuledger,tier=a"


async def test_absent_service_has_no_replicas(
    answers: CannedApiServer, questions: ApiQuestions
) -> None:
    answers.by_path[SERVICE_PATH] = failure(404, "NotFound", name="east-gpuledger")
    assert await addresses_of(questions, SERVICE) == []
    assert questions.refused == questions.unanswered == []


async def test_missing_right_is_collected(
    answers: CannedApiServer, questions: ApiQuestions
) -> None:
    answers.by_path[PODS_PATH] = failure(403, "Forbidden", "may not list pods")
    assert isinstance(await addresses_of(questions, SERVICE), Unasked)
    assert "may not list pods" in questions.refused[0]
    assert questions.unanswered == []


async def test_failed_answer_is_not_a_missing_right(
    answers: CannedApiServer, questions: ApiQuestions
) -> None:
    answers.by_path[PODS_PATH] = failure(500, "InternalError", "etcd is away")
    assert isinstance(await addresses_of(questions, SERVICE), Unasked)
    assert questions.refused == []
    assert "etcd is away" in questions.unanswered[0]
