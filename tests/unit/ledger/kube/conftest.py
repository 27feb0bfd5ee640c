"""An API server of prepared answers, and a client of it."""

import pytest
from support.fakes.apiserver import client_on_loopback
from support.fakes.canned_apiserver import CannedApiServer


@pytest.fixture
def answers() -> CannedApiServer:
    return CannedApiServer()


@pytest.fixture
async def client(answers, tmp_path):
    async with client_on_loopback(answers.app(), tmp_path) as client:
        yield client
