"""Only processes of this machine place pods when no client CA is set."""

import httpx2
import pytest
from starlette.datastructures import Headers
from support.servers.tls_server import answer_scope, get, serving_at

from ledger.runtime.http.loopback_access import FORWARDED, LoopbackRequired, is_local


async def test_a_process_of_this_machine_may() -> None:
    async with serving_at(LoopbackRequired(answer_scope)) as address:
        status, _ = await get(f"http://{address}/extender/bind")
    assert status == 200


@pytest.mark.parametrize(
    ("client", "host"),
    [("10.1.2.3", "10.1.2.4:8443"), ("127.0.0.1", "rebound.example"), ("10.1.2.3", "127.0.0.1")],
)
@pytest.mark.parametrize(
    ("path", "status"), [("/extender/bind", 403), ("/extender/", 403), ("/readyz", 200)]
)
async def test_others_and_web_pages_may_not(client: str, host: str, path: str, status: int) -> None:
    transport = httpx2.ASGITransport(app=LoopbackRequired(answer_scope), client=(client, 1))
    async with httpx2.AsyncClient(transport=transport, base_url="http://x") as visitor:
        answer = await visitor.post(path, headers={"host": host})
    assert answer.status_code == status
    if status == 403:
        assert "client_ca" in answer.json()["error"]["message"]


@pytest.mark.parametrize("header", ["", *FORWARDED])
def test_requests_that_a_proxy_forwards_are_not_local(header: str) -> None:
    scope = {"type": "http", "client": ("127.0.0.1", 1)}
    headers = Headers({"host": "127.0.0.1:8443"} | ({header: "x"} if header else {}))
    assert is_local(scope, headers) is (not header)
