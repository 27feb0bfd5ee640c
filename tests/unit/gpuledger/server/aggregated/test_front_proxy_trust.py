"""Front proxy trust: which contents of the ConfigMap name a proxy."""

import json
import ssl
from pathlib import Path

import pytest
from cryptography.x509.oid import NameOID
from support.servers.tls_server import ClientAuthority

from gpuledger.server.aggregated.front_proxy_trust import UntrustedProxy, common_name, trust_of

LISTS = {
    "requestheader-username-headers": '["X-Remote-User"]',
    "requestheader-group-headers": '["X-Remote-Group"]',
    "requestheader-extra-headers-prefix": '["X-Remote-Extra-"]',
}


def config_map(**data: str) -> bytes:
    named = {name.replace("_", "-"): data[name] for name in data}
    return json.dumps({"data": {**LISTS, **named}}).encode()


@pytest.fixture
def authority(tmp_path: Path) -> ClientAuthority:
    return ClientAuthority(tmp_path / "proxies")


def test_published_ca_names_and_headers_are_used(authority: ClientAuthority) -> None:
    pem = Path(authority.file).read_text()
    trust = trust_of(
        config_map(requestheader_client_ca_file=pem, requestheader_allowed_names='["p"]')
    )
    assert trust.authority == pem.encode()
    assert (trust.user_headers, trust.uid_headers) == (("x-remote-user",), ("x-remote-uid",))
    certificate = Path(authority.issue((NameOID.COMMON_NAME, "p"))).read_text()
    other = Path(authority.issue((NameOID.COMMON_NAME, "q"))).read_text()
    assert trust.accepts([certificate])
    assert not trust.accepts([other])
    assert not trust.accepts([])


def test_several_common_names_are_none(authority: ClientAuthority) -> None:
    names = ((NameOID.COMMON_NAME, "p"), (NameOID.COMMON_NAME, "q"))
    assert common_name(Path(authority.issue(*names)).read_text()) == ""


@pytest.mark.parametrize(
    ("data", "named"),
    [
        ({}, "requestheader-client-ca-file"),
        ({"requestheader_client_ca_file": " \n"}, "requestheader-client-ca-file"),
        ({"requestheader_client_ca_file": "text"}, "requestheader-client-ca-file"),
        ({"requestheader_allowed_names": "p"}, "requestheader-allowed-names"),
    ],
)
def test_unusable_config_map_names_no_proxy(data: dict[str, str], named: str) -> None:
    with pytest.raises(UntrustedProxy, match=named):
        trust_of(config_map(**data))


def test_any_name_is_refused_for_a_ca_of_users(authority: ClientAuthority, tmp_path: Path) -> None:
    pem = Path(authority.file).read_text()
    with pytest.raises(UntrustedProxy, match="every user could name another"):
        trust_of(config_map(requestheader_client_ca_file=pem, client_ca_file=pem))
    others = Path(ClientAuthority(tmp_path / "users").file).read_text()
    trust = trust_of(config_map(requestheader_client_ca_file=pem, client_ca_file=others))
    assert not trust.names


def test_config_map_without_user_headers_names_no_proxy(authority: ClientAuthority) -> None:
    pem = Path(authority.file).read_text()
    with pytest.raises(UntrustedProxy, match="username-headers"):
        trust_of(config_map(requestheader_client_ca_file=pem, requestheader_username_headers="[]"))


def test_ca_with_a_key_of_an_unknown_kind_names_no_proxy(authority: ClientAuthority) -> None:
    """The error is that of a content, which ends no service."""
    der = ssl.PEM_cert_to_DER_cert(Path(authority.file).read_text())
    elliptic, unknown = (bytes.fromhex(f"06072a8648ce3d02{last}") for last in ("01", "7f"))
    assert elliptic in der
    pem = ssl.DER_cert_to_PEM_cert(der.replace(elliptic, unknown))
    with pytest.raises(UntrustedProxy, match="requestheader-client-ca-file cannot be read"):
        trust_of(config_map(requestheader_client_ca_file=pem))


@pytest.mark.parametrize("body", [b"[]", b"{", b'{"data": 1}'])
def test_other_answers_name_no_proxy(body: bytes) -> None:
    with pytest.raises(UntrustedProxy):
        trust_of(body)
