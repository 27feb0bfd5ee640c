"""Front proxy trust: who may name the user of a request, as the API server publishes it.

The ConfigMap `extension-apiserver-authentication` of kube-system has the CA and the names of the
API server's proxy client, and the headers in which it sends users. `trust_of` is pure and refuses
contents by which another client could name users.
"""

import functools
from collections.abc import Mapping
from typing import Final

import msgspec
from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from cryptography.x509.oid import NameOID

CONFIG_MAP: Final = "/api/v1/namespaces/kube-system/configmaps/extension-apiserver-authentication"

_PREFIX: Final = "requestheader-"
_DEFAULTS: Final = {"uid-headers": '["X-Remote-Uid"]'}
"""API servers before 1.32 publish no header for uids, and send none."""


class UntrustedProxy(Exception):
    """No proxy may name users; the message has the field and the remedy."""


class FrontProxyTrust(msgspec.Struct, frozen=True):
    """The proxy whose headers name users.

    `authority` are its CAs as PEM. Without `names`, every certificate of them is the proxy's.
    Header names are in lower case; several of a kind are alternatives, the first one present wins.
    """

    authority: bytes
    names: frozenset[str]
    user_headers: tuple[str, ...]
    uid_headers: tuple[str, ...]
    group_headers: tuple[str, ...]
    extra_prefixes: tuple[str, ...]

    def accepts(self, certificates: list[str]) -> bool:
        """Return whether a verified chain of PEM certificates begins with the proxy's."""
        if not certificates:
            return False
        return not self.names or common_name(certificates[0]) in self.names


class _ConfigMap(msgspec.Struct):
    data: dict[str, str] = {}


def trust_of(body: bytes) -> FrontProxyTrust:
    """Return the trust that a ConfigMap describes. Raises UntrustedProxy."""
    try:
        data = msgspec.json.decode(body, type=_ConfigMap).data
    except msgspec.MsgspecError as error:
        raise UntrustedProxy(f"{CONFIG_MAP}: {error}") from error
    authority = data.get(f"{_PREFIX}client-ca-file", "")
    names = frozenset(_list(data, "allowed-names"))
    issued = _keys(authority, "requestheader-client-ca-file")
    if not issued:
        raise UntrustedProxy(
            "requestheader-client-ca-file has no CA: start the API server with"
            " --requestheader-client-ca-file, --proxy-client-cert-file and --proxy-client-key-file"
        )
    if not names and issued & _keys(data.get("client-ca-file", ""), "client-ca-file"):
        raise UntrustedProxy(
            "requestheader-allowed-names is empty and requestheader-client-ca-file also issues"
            " users' certificates, so every user could name another one: start the API server with"
            " --requestheader-allowed-names"
        )
    user_headers = _headers(data, "username-headers")
    if not user_headers:
        raise UntrustedProxy(
            "requestheader-username-headers is empty: start the API server with"
            " --requestheader-username-headers=X-Remote-User"
        )
    return FrontProxyTrust(
        authority.encode(),
        names,
        user_headers,
        _headers(data, "uid-headers"),
        _headers(data, "group-headers"),
        _headers(data, "extra-headers-prefix"),
    )


@functools.lru_cache(maxsize=64)
def common_name(certificate: str) -> str:
    """Return the only common name of a PEM certificate, "" if it has none or several."""
    subject = x509.load_pem_x509_certificate(certificate.encode()).subject
    names = subject.get_attributes_for_oid(NameOID.COMMON_NAME)
    return str(names[0].value) if len(names) == 1 else ""


def _keys(pem: str, field: str) -> set[bytes]:
    """Return the public keys of the CAs in a text of PEM certificates."""
    if not pem.strip():
        return set()
    try:
        return {
            authority.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
            for authority in x509.load_pem_x509_certificates(pem.encode())
        }
    except (ValueError, x509.InvalidVersion, UnsupportedAlgorithm) as error:
        raise UntrustedProxy(f"{field} cannot be read: {error}") from error


def _headers(data: Mapping[str, str], name: str) -> tuple[str, ...]:
    return tuple(header.lower() for header in _list(data, name) if header)


def _list(data: Mapping[str, str], name: str) -> list[str]:
    text = data.get(f"{_PREFIX}{name}") or _DEFAULTS.get(name, "[]")
    try:
        return msgspec.json.decode(text, type=list[str])
    except msgspec.MsgspecError as error:
        raise UntrustedProxy(f"{_PREFIX}{name} is not a JSON list of texts: {error}") from error
