"""Access to an endpoint is decided once per connection on the direct path, by the same guard."""

from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from cryptography.x509.oid import NameOID
from support.servers.both_ways import PATH, WAYS, Handler, client_of, post, serving_way
from support.servers.tls_server import ClientAuthority, visitor

from ledger.runtime.http.client_certificate_access import ClientCertificateRequired
from ledger.runtime.http.loopback_access import FORWARDED, LoopbackRequired
from ledger.runtime.tls import certificate_reload, server_certificate

Find = Callable[[], server_certificate.CertificateFiles]

CERTIFIED = partial(ClientCertificateRequired, subjects=["CN=apiserver"])
LOCAL = partial(LoopbackRequired, prefix="/admission/")


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    ("subject", "status", "reason"),
    [
        ("apiserver", 200, b""),
        ("kubelet", 403, b"is not for CN=kubelet"),
        ("", 403, b"needs a client certificate"),
    ],
)
async def test_certificate_decides_for_every_request_of_a_connection(
    own: Find,
    clients: ClientAuthority,
    tmp_path: Path,
    way: str,
    subject: str,
    status: int,
    reason: bytes,
) -> None:
    handler, secured = Handler(), certificate_reload.Tls(own, clients.file)
    certificate = clients.issue((NameOID.COMMON_NAME, subject)) if subject else ""
    context = visitor(tmp_path, certificate)
    async with (
        serving_way(way, handler, CERTIFIED, secured=secured) as (address, app),
        client_of(address, ssl=context) as client,
    ):
        for _ in range(2):
            client.send(post(b"x"))
            answered, _, body = await client.answer()
            assert answered == status
            assert reason in body
    assert len(handler.answered) == (2 if status == 200 else 0)
    assert app.count == (0 if way == "direct" and status == 200 else 2)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    ("host", "status"),
    [
        (b"localhost", 200),
        (b"127.0.0.1:8443", 200),
        (b"[::1]", 200),
        (b"gpuledger.example", 403),
        (b"", 403),
    ],
)
async def test_host_header_decides_without_certificates(way: str, host: bytes, status: int) -> None:
    handler = Handler()
    async with (
        serving_way(way, handler, LOCAL) as (
            address,
            app,
        ),
        client_of(address) as client,
    ):
        client.send(post(b"x").replace(b"localhost", host, 1))
        assert (await client.answer())[0] == status
        client.send(post(b"y"))
        assert (await client.answer())[0] == 200
    assert app.count == (0 if way == "direct" else 2) + (way == "direct" and status == 403)


@pytest.mark.parametrize("way", WAYS)
async def test_second_host_header_gives_no_access(way: str) -> None:
    handler = Handler()
    async with serving_way(way, handler, LOCAL) as (address, _), client_of(address) as client:
        client.send(post(b"x", b"host: localhost").replace(b"localhost", b"rebound.example", 1))
        assert (await client.answer())[0] == 403
    assert handler.answered == []


@pytest.mark.parametrize("way", WAYS)
async def test_request_that_a_local_proxy_forwards_gets_no_access(way: str) -> None:
    handler = Handler()
    async with serving_way(way, handler, LOCAL) as (address, _), client_of(address) as client:
        for header in FORWARDED:
            client.send(post(b"x", f"{header.title()}: for=192.0.2.1".encode()))
            assert (await client.answer())[0] == 403, header
        client.send(post(b"y"))
        assert (await client.answer())[0] == 200
    assert handler.answered == [b"y"]


@pytest.mark.parametrize("peer", ["192.0.2.1", ""])
def test_client_of_another_machine_is_refused_at_its_connection(peer: str) -> None:
    guard = LoopbackRequired(_no_application, "/admission/")
    assert guard.access(PATH, None, peer).value == "refused"
    assert guard.access("/v1/usage", None, peer).value == "granted"


async def _no_application(*_: object) -> None:
    raise AssertionError("the application is not called")
