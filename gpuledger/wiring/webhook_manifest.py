"""Webhook manifest: the webhook configurations as text, for `kubectl apply`."""

import re
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from cryptography import x509

from gpuledger.cli.exit_codes import CommandError, Exit
from gpuledger.wiring import store_layout, webhook_scope
from ledger.runtime.settings.settings import Settings
from webhook.configurations import webhook_configurations
from webhook.configurations.webhook_configurations import ServiceReference, WebhookAddress

_SERVICE: Final = re.compile(r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?")
_URL: Final = re.compile(r"https://[^/?#@\s]+(/[^?#\s]*)?")


def render_manifest(settings: Settings, url: str, service: str, authority: str) -> str:
    """Return the configurations for a base URL, or for a Service of the service's namespace.

    `authority` names the PEM file of the CA; empty means the CA that the service has created.
    Raises CommandError when neither or both are given, or the CA cannot be read.
    """
    if bool(url) == bool(service):
        raise CommandError(Exit.USAGE, "give one of --url and --service")
    _check(url, service)
    target = url or ServiceReference(settings.namespace, service)
    configurations = webhook_configurations.configurations(
        WebhookAddress(target, _authority(settings, authority)),
        webhook_scope.review_scope(settings),
        webhook_scope.registration(settings),
    )
    return webhook_configurations.render(configurations)


def _check(url: str, service: str) -> None:
    """Raise CommandError for an address that the API server would refuse."""
    if service and not _SERVICE.fullmatch(service):
        raise CommandError(
            Exit.USAGE, f"--service {service!r} is not the name of a Service: use a-z, 0-9, -"
        )
    if url and not (_URL.fullmatch(url) and _port(url)):
        raise CommandError(
            Exit.USAGE,
            f"--url {url!r} is not https://HOST[:PORT][/PATH], such as"
            " https://gpuledger.example:8443: the API server accepts no other form",
        )


def _port(url: str) -> bool:
    """Return whether a URL has a valid port or none."""
    try:
        return urlsplit(url).port != 0
    except ValueError:
        return False


def _authority(settings: Settings, given: str) -> bytes:
    path = Path(given) if given else store_layout.authority(settings)
    try:
        pem = path.read_bytes()
    except OSError as error:
        raise CommandError(
            Exit.NOT_FOUND,
            f"{path} cannot be read ({error.strerror}): name the service's CA with --ca, or its"
            " store with --store-dir once it has started there",
        ) from error
    try:
        x509.load_pem_x509_certificates(pem)
    except ValueError as error:
        raise CommandError(
            Exit.USAGE, f"{path} holds no certificate in PEM: name the service's CA with --ca"
        ) from error
    return pem
