"""Registering by hand: the webhook configurations as text."""

from pathlib import Path

from gpuledger import layout, wiring
from gpuledger.exits import Exit, Stop
from ledger.runtime.settings import Settings
from webhook import registration
from webhook.registration import Address, Service


def printed(settings: Settings, url: str, service: str, authority: str) -> str:
    """Return the configurations for a base URL, or for a Service of the own namespace.

    `authority` names the PEM file of the CA; empty means the one that the service has made for
    itself. Raises Stop when neither or both are given, or the CA cannot be read.
    """
    if bool(url) == bool(service):
        raise Stop(Exit.USAGE, "give one of --url and --service")
    target = url or Service(settings.namespace, service)
    found = registration.configurations(
        Address(target, _authority(settings, authority)),
        wiring.reviewed(settings),
    )
    return registration.render(found)


def _authority(settings: Settings, given: str) -> bytes:
    path = Path(given) if given else Path(settings.store_dir) / layout.AUTHORITY
    try:
        return path.read_bytes()
    except OSError as error:
        raise Stop(
            Exit.NOT_FOUND,
            f"{path} cannot be read ({error.strerror}): name the service's CA with --ca, or its"
            " store with --store-dir once it has started there",
        ) from error
