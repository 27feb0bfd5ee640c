"""An API server of prepared answers, and a client of it."""

import pytest
from support.answers import Answers
from support.apiserver import on_loopback

from ledger.kube.client.http_client import Client


@pytest.fixture
def answers() -> Answers:
    return Answers()


@pytest.fixture
async def client(answers, tmp_path):
    async with (
        on_loopback(answers.app(), tmp_path) as kubeconfig,
        await Client.connect(kubeconfig) as client,
    ):
        yield client
