"""Service certificate: given by the settings, shared by replicas, or made with a CA of its own."""

from collections.abc import Callable
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from gpuledger.wiring import store_layout
from ledger.runtime import addresses
from ledger.runtime.settings.settings import Settings
from ledger.runtime.tls import certificate_reload, server_certificate
from ledger.runtime.tls.certificate_reload import Tls
from ledger.runtime.tls.server_certificate import CertificateFiles

_TLS_DIRECTORY: Final = Path(store_layout.AUTHORITY).parent


def load(
    settings: Settings, address: str, shared: Callable[[], CertificateFiles] | None = None
) -> Tls | None:
    """Load or create the certificate of a service at an address; None for plain HTTP.

    `shared` returns the files of the certificate that replicas share. Raises CertificateError.
    """
    if settings.plain_http:
        return None
    if shared is not None:
        return Tls(shared, settings.client_ca)
    if settings.tls_cert:
        return Tls(
            certificate_reload.given(settings.tls_cert, settings.tls_key), settings.client_ca
        )
    names = (*settings.tls_names, *_own_names(settings, address))
    directory = Path(settings.store_dir) / _TLS_DIRECTORY
    return Tls(certificate_reload.own(directory, names), settings.client_ca)


def authority(settings: Settings) -> bytes:
    """Return the CA for the API server now, PEM; empty for a certificate given without its CA.

    Raises CertificateError.
    """
    if settings.plain_http or (settings.tls_cert and not settings.tls_ca):
        return b""
    file = Path(settings.tls_ca) if settings.tls_cert else store_layout.authority(settings)
    return server_certificate.authorities(file)


def shared_names(settings: Settings) -> tuple[str, ...]:
    """Return the names in the certificate that replicas share: the same for each of them."""
    service, namespace = settings.register_service, settings.namespace
    if not service:
        return settings.tls_names
    of_service = (f"{service}.{namespace}.svc", f"{service}.{namespace}", service)
    return (*of_service, *settings.tls_names)


def _own_names(settings: Settings, address: str) -> tuple[str, ...]:
    """Return the names under which this service is reached, for its certificate."""
    names = [addresses.split(address)[0]]
    if settings.register_webhook:
        names.append(urlsplit(settings.register_webhook).hostname or "")
    return tuple(name for name in names if name and name not in ("0.0.0.0", "::"))
