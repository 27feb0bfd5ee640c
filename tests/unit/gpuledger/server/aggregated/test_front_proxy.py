"""Front proxy: the trust follows the ConfigMap, and ends with it."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from support.fakes.apiserver import client_on_loopback
from support.fakes.canned_apiserver import CannedApiServer, failure
from support.harness.waiting import until
from support.servers.tls_server import ClientAuthority

from gpuledger.server.aggregated.front_proxy import FrontProxy
from gpuledger.server.aggregated.front_proxy_trust import CONFIG_MAP, UntrustedProxy
from ledger.runtime.http.acceptor import TURN_SECONDS
from ledger.runtime.tls import certificate_reload
from ledger.runtime.tls.certificate_reload import Tls


@pytest.fixture
def answers() -> CannedApiServer:
    return CannedApiServer()


@pytest.fixture
def tls(tmp_path: Path) -> Tls:
    return Tls(certificate_reload.own(tmp_path / "tls", ("localhost",)))


@pytest.fixture
async def proxy(answers: CannedApiServer, tls: Tls, tmp_path: Path) -> AsyncIterator[FrontProxy]:
    async with client_on_loopback(answers.app(), tmp_path) as client:
        yield FrontProxy(client, tls, file=tmp_path / "aggregated" / "ca.crt")


def config_map(authority: str) -> dict[str, Any]:
    return {
        "data": {
            "requestheader-client-ca-file": authority,
            "requestheader-allowed-names": '["front-proxy-client"]',
            "requestheader-username-headers": '["X-Remote-User"]',
        }
    }


def authority_of(folder: Path) -> str:
    """Return a new CA."""
    return Path(ClientAuthority(folder).file).read_text()


def verified(tls: Tls) -> int:
    """Return the number of CAs by which the handshake verifies clients."""
    return len(tls.authorities)


def is_trusted(proxy: FrontProxy) -> bool:
    try:
        proxy.trust()
    except UntrustedProxy:
        return False
    return True


async def cut(request: web.Request) -> web.Response:
    """End the connection without an answer."""
    assert request.transport is not None
    request.transport.abort()
    return web.Response()


@pytest.mark.parametrize(
    "later",
    [
        None,
        {"data": {}},
        failure(403, "Forbidden"),
        {"data": "text"},
    ],
)
async def test_trust_ends_with_the_published_ca(
    answers: CannedApiServer, proxy: FrontProxy, tls: Tls, tmp_path: Path, later: Any
) -> None:
    assert not is_trusted(proxy)
    authority = authority_of(tmp_path / "proxies")
    answers.by_path[CONFIG_MAP] = config_map(authority)
    await proxy.refresh()
    assert is_trusted(proxy)
    assert verified(tls) == 1
    answers.by_path[CONFIG_MAP] = later
    await proxy.refresh()
    assert not is_trusted(proxy)
    assert verified(tls) == 0, "no client certificate is verified, so none is used"
    answers.by_path[CONFIG_MAP] = config_map(authority)
    await proxy.refresh()
    assert is_trusted(proxy)


async def test_another_ca_replaces_the_first(
    answers: CannedApiServer, proxy: FrontProxy, tls: Tls, tmp_path: Path
) -> None:
    for name in ("first", "second"):
        pem = authority_of(tmp_path / name)
        answers.by_path[CONFIG_MAP] = config_map(pem)
        await proxy.refresh()
        assert proxy.trust().authority.decode() == pem
        assert [each.subject.rfc4514_string() for each in tls.authorities] == [f"CN={name}"]


async def test_no_proxy_is_trusted_until_clients_of_a_removed_ca_ended(
    answers: CannedApiServer, proxy: FrontProxy, tls: Tls, tmp_path: Path
) -> None:
    old, new = authority_of(tmp_path / "old"), authority_of(tmp_path / "new")
    answers.by_path[CONFIG_MAP] = config_map(old)
    await proxy.refresh()
    answers.by_path[CONFIG_MAP] = config_map(old + new)
    async with asyncio.timeout(TURN_SECONDS):
        await proxy.refresh()  # no CA is removed, so nothing is waited for
    answers.by_path[CONFIG_MAP] = config_map(new)
    refreshing = asyncio.create_task(proxy.refresh())
    await until(lambda: verified(tls) == 1)
    await asyncio.sleep(TURN_SECONDS)
    assert not is_trusted(proxy), "connections are checked each turn"
    await refreshing
    assert is_trusted(proxy)


async def test_trust_stays_while_the_api_server_is_away(
    answers: CannedApiServer, proxy: FrontProxy, tmp_path: Path
) -> None:
    pem = authority_of(tmp_path / "proxies")
    answers.by_path[CONFIG_MAP] = config_map(pem)
    await proxy.refresh()
    answers.by_path[CONFIG_MAP] = cut
    await proxy.refresh()
    assert is_trusted(proxy)
