"""An API server of prepared answers, and a client of it."""

import pytest
from support.fakes.apiserver import on_loopback
from support.fakes.canned_apiserver import CannedApiServer

from ledger.kube.client.api_client import ApiClient


@pytest.fixture
def answers() -> CannedApiServer:
    return CannedApiServer()


@pytest.fixture
async def client(answers, tmp_path):
    async with (
        on_loopback(answers.app(), tmp_path) as kubeconfig,
        await ApiClient.connect(kubeconfig) as client,
    ):
        yield client
