"""Questions of `gpuledger check` to the API server, and its answers."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Final

import pytest
from msgspec.structs import replace
from support.builders.installation_facts import SITE
from support.fakes.apiserver import client_on_loopback
from support.fakes.canned_apiserver import CannedApiServer, failure

from gpuledger.check.install_facts import AgentSet, gather
from gpuledger.check.probe_pods import ProbeOutcome
from ledger.kube.client.api_client import ApiClient

SETS: Final = "/apis/apps/v1/daemonsets"


@pytest.fixture
def answers() -> CannedApiServer:
    return CannedApiServer()


@pytest.fixture
async def client(answers: CannedApiServer, tmp_path: Path) -> AsyncIterator[ApiClient]:
    async with client_on_loopback(answers.app(), tmp_path) as connected:
        yield connected


def agents(namespace: str) -> dict[str, Any]:
    """Return a list with a DaemonSet of agents of which none is ready."""
    metadata = {"name": "gpuledger-agent", "namespace": namespace, "labels": {}}
    status = {"desiredNumberScheduled": 1, "numberReady": 0}
    return {"items": [{"metadata": metadata, "status": status}]}


async def test_agents_are_those_of_their_namespace(
    client: ApiClient, answers: CannedApiServer
) -> None:
    """A tenant's DaemonSet with the same labels is none of them."""
    answers.by_path[SETS] = agents("team")
    answers.by_path["/apis/apps/v1/namespaces/gpu-agents/daemonsets"] = agents("gpu-agents")
    facts = await gather(client, replace(SITE, agents="gpu-agents"))
    assert facts.agents == [AgentSet("gpu-agents/gpuledger-agent", "", wanted=1, ready=0)]
    assert answers.times_asked(SETS) == 0


async def test_namespace_of_the_dry_runs_that_is_absent_is_an_answer(
    client: ApiClient, answers: CannedApiServer
) -> None:
    missing = failure(404, "NotFound", 'namespaces "typo" not found', "typo")
    answers.by_path["/api/v1/namespaces/typo/pods"] = missing
    facts = await gather(client, replace(SITE, probes="typo"))
    assert facts.denied.outcome is ProbeOutcome.NO_NAMESPACE
    assert facts.allowed.outcome is ProbeOutcome.NO_NAMESPACE
