"""mTLS on real connections: none, the wrong CA, the right CA, the wrong name."""

import ssl
from collections.abc import Callable
from pathlib import Path

import aiohttp
import pytest
from cryptography.x509.oid import NameOID
from support.servers.tls_server import ClientAuthority, answer_scope, get, serving_at, visitor

from ledger.runtime.http.client_certificate_access import ClientCertificateRequired
from ledger.runtime.tls import certificate_reload, server_certificate

Find = Callable[[], server_certificate.CertificateFiles]


@pytest.fixture
def secured(own: Find, clients: ClientAuthority) -> certificate_reload.Tls:
    return certificate_reload.Tls(own, clients.file)


@pytest.mark.parametrize("path", ["/admission/validate", "/admission", "/extender/filter"])
async def test_a_guarded_path_is_refused_without_a_client_certificate(
    secured: certificate_reload.Tls, tmp_path: Path, path: str
) -> None:
    async with serving_at(ClientCertificateRequired(answer_scope), secured) as address:
        status, body = await get(f"https://{address}{path}", visitor(tmp_path))
    assert status == 403
    assert body["error"]["message"].startswith(f"{path} needs a client certificate")


async def test_an_encoded_path_is_guarded_like_the_plain_one(
    secured: certificate_reload.Tls, tmp_path: Path
) -> None:
    async with serving_at(ClientCertificateRequired(answer_scope), secured) as address:
        status, _ = await get(f"https://{address}/%61dmission/validate", visitor(tmp_path))
    assert status == 403


@pytest.mark.parametrize("path", ["/healthz", "/metrics", "/admissions"])
async def test_other_paths_need_no_client_certificate(
    secured: certificate_reload.Tls, tmp_path: Path, path: str
) -> None:
    async with serving_at(ClientCertificateRequired(answer_scope), secured) as address:
        status, body = await get(f"https://{address}{path}", visitor(tmp_path))
    assert status == 200
    assert body["extensions"]["tls"]["client_cert_name"] is None


async def test_a_certificate_of_the_client_ca_opens_the_guarded_paths(
    secured: certificate_reload.Tls, clients: ClientAuthority, tmp_path: Path
) -> None:
    client = clients.issue((NameOID.ORGANIZATION_NAME, "a, b"), (NameOID.COMMON_NAME, "apiserver"))
    async with serving_at(ClientCertificateRequired(answer_scope), secured) as address:
        status, body = await get(f"https://{address}/admission/validate", visitor(tmp_path, client))
    assert status == 200
    extension = body["extensions"]["tls"]
    assert extension["client_cert_name"] == "CN=apiserver,O=a\\, b"
    assert extension["client_cert_chain"][0].startswith("-----BEGIN CERTIFICATE-----")


@pytest.mark.parametrize("path", ["/admission/validate", "/healthz"])
async def test_a_certificate_of_another_ca_fails_the_handshake(
    secured: certificate_reload.Tls, strangers: ClientAuthority, tmp_path: Path, path: str
) -> None:
    client = strangers.issue((NameOID.COMMON_NAME, "apiserver"))
    async with serving_at(ClientCertificateRequired(answer_scope), secured) as address:
        with pytest.raises((ssl.SSLError, aiohttp.ClientError)):
            await get(f"https://{address}{path}", visitor(tmp_path, client))


async def test_a_client_of_another_name_is_refused_where_names_are_given(
    secured: certificate_reload.Tls, clients: ClientAuthority, tmp_path: Path
) -> None:
    client = clients.issue((NameOID.COMMON_NAME, "kubelet"))
    app = ClientCertificateRequired(answer_scope, subjects=["CN=apiserver"])
    async with serving_at(app, secured) as address:
        status, body = await get(f"https://{address}/admission", visitor(tmp_path, client))
    assert (status, body["error"]["message"][:35]) == (403, "/admission is not for CN=kubelet; a")


async def test_a_header_does_not_stand_for_a_certificate(
    secured: certificate_reload.Tls, tmp_path: Path
) -> None:
    headers = {"X-Forwarded-Client-Cert": "CN=apiserver", "X-Client-Cert": "CN=apiserver"}
    async with serving_at(ClientCertificateRequired(answer_scope), secured) as address:
        status, _ = await get(f"https://{address}/admission", visitor(tmp_path), **headers)
    assert status == 403


async def test_without_a_client_ca_a_presented_certificate_proves_nothing(
    own: Find, strangers: ClientAuthority, tmp_path: Path
) -> None:
    client = strangers.issue((NameOID.COMMON_NAME, "apiserver"))
    async with serving_at(
        ClientCertificateRequired(answer_scope), certificate_reload.Tls(own)
    ) as address:
        status, _ = await get(f"https://{address}/admission", visitor(tmp_path, client))
    assert status == 403
