"""Access to data of all tenants: metrics, and the reasons of readiness."""

from pathlib import Path
from typing import Any

import httpx2
import pytest
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse
from starlette.routing import Route

from gpuledger.cli.exit_codes import CommandError
from gpuledger.wiring import metrics_token
from ledger.runtime.http.health import Health
from ledger.runtime.http.metrics_access import METRICS, MonitoringAccess
from ledger.runtime.http.token_reviews import TokenGuard
from ledger.runtime.settings.settings import Settings

TENANT = "namespace red waits for 3 cards"
OWN = "x" * 32
VERBOSE = ["/readyz?verbose", "/livez?verbose=1", "/healthz?exclude=a&verbose", "/readyz?%76erbose"]
SHOWN = [METRICS, f"{METRICS}?a=b", *VERBOSE]


class Reviewer:
    """Accepts the tokens of a scraper and a tenant."""

    async def review(self, token: str) -> str | None:
        return {"t-scraper": "scraper", "t-red": "red"}.get(token)

    async def may(self, caller: str, verb: str, resource: str, namespace: str) -> bool:
        return (caller, verb, resource, namespace) == ("scraper", "get", METRICS, "")


async def metrics(_: Any) -> PlainTextResponse:
    return PlainTextResponse(TENANT)


def guarded(**how: Any) -> Any:
    """Return an application with both, behind the guard."""
    health = Health()
    health.add("log", lambda: (True, TENANT), live=True)
    app = Starlette(routes=[*health.routes(), Route(METRICS, metrics)])
    return MonitoringAccess(app, how.pop("guard", TokenGuard(Reviewer())), **how)


async def ask(
    app: Any,
    path: str,
    token: str = "",
    *,
    peer: str = "203.0.113.9",
    host: str = "gpuledger.example",
    certificate: str = "",
) -> httpx2.Response:
    async def certified(scope: Any, receive: Any, send: Any) -> None:
        tls = {"client_cert_name": certificate or None}
        await app({**scope, "extensions": {"tls": tls}}, receive, send)

    headers = {"host": host} | ({"authorization": f"Bearer {token}"} if token else {})
    transport = httpx2.ASGITransport(certified, client=(peer, 4711))
    async with httpx2.AsyncClient(transport=transport, base_url="https://gpuledger") as client:
        return await client.get(path, headers=headers)


@pytest.mark.parametrize("path", SHOWN)
async def test_unauthenticated_clients_do_not_read_data_of_all_tenants(path: str) -> None:
    answer = await ask(guarded(), path)
    assert answer.status_code == 401
    assert TENANT not in answer.text
    assert "give a bearer token" in answer.text
    assert "metrics_token_file" in answer.text


@pytest.mark.parametrize("path", SHOWN)
async def test_tenant_does_not_read_data_of_all_tenants(path: str) -> None:
    answer = await ask(guarded(), path, "t-red")
    assert answer.status_code == 403
    assert "you may not get the path /metrics" in answer.text


@pytest.mark.parametrize("path", SHOWN)
async def test_a_user_who_may_get_metrics_reads_both(path: str) -> None:
    answer = await ask(guarded(), path, "t-scraper")
    assert answer.status_code == 200
    assert TENANT in answer.text


@pytest.mark.parametrize("path", SHOWN)
@pytest.mark.parametrize("guard", [TokenGuard(Reviewer()), TokenGuard(None)])
async def test_the_token_of_the_file_reads_both(path: str, guard: TokenGuard[str]) -> None:
    app = guarded(guard=guard, token=lambda: OWN)
    assert (await ask(app, path, OWN)).status_code == 200
    assert (await ask(app, path, OWN[:-1])).status_code in (401, 403)


async def test_no_token_is_not_the_token_of_a_missing_file() -> None:
    assert (await ask(guarded(token=str), METRICS)).status_code == 401


@pytest.mark.parametrize("path", SHOWN)
async def test_loopback_reads_both_unless_the_host_header_has_another_name(
    path: str,
) -> None:
    app = guarded(guard=TokenGuard(None))
    assert (await ask(app, path, peer="127.0.0.1", host="localhost")).status_code == 200
    assert (await ask(app, path, peer="127.0.0.1", host="evil.example")).status_code == 403


@pytest.mark.parametrize(
    ("subjects", "name", "status"),
    [
        (("CN=apiserver",), "CN=apiserver", 200),
        (("CN=apiserver",), "CN=kubelet", 401),
        ((), "CN=kubelet", 200),
        ((), "", 401),
        (None, "CN=apiserver", 401),
    ],
)
async def test_a_certificate_that_may_send_reviews_reads_both(
    subjects: tuple[str, ...] | None, name: str, status: int
) -> None:
    app = guarded(subjects=subjects)
    for path in SHOWN:
        assert (await ask(app, path, certificate=name)).status_code == status


@pytest.mark.parametrize("path", ["/readyz", "/livez", "/healthz", "/readyz?exclude=other"])
async def test_open_probes_name_failing_checks_without_reasons(path: str) -> None:
    answer = await ask(guarded(), path)
    assert answer.status_code == 200
    assert '"name":"log","ok":true' in answer.text
    assert TENANT not in answer.text
    near = await ask(guarded(), path, peer="127.0.0.1", host="localhost")
    assert TENANT in near.text


def test_a_token_file_that_is_replaced_counts_at_once(tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_text(f"{OWN}\n")
    read = metrics_token.token_reader(Settings(metrics_token_file=str(path)))
    assert read() == OWN
    path.write_text("y" * 40)
    assert read() == "y" * 40
    path.write_text("short")
    assert read() == ""
    path.unlink()
    assert read() == ""


def test_a_token_file_without_a_token_ends_the_start(tmp_path: Path) -> None:
    path = tmp_path / "token"
    for text in (None, b"short", b"\xff" * 40):
        if text is not None:
            path.write_bytes(text)
        with pytest.raises(CommandError, match="metrics_token_file"):
            metrics_token.token_reader(Settings(metrics_token_file=str(path)))


def test_without_a_token_file_there_is_no_token() -> None:
    assert metrics_token.token_reader(Settings())() == ""
