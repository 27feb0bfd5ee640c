"""Store layout: the files of a store directory that are not the embedded server's own."""

from pathlib import Path
from typing import Final

from ledger.runtime.settings.settings import Settings

PROJECTION: Final = "projection.sqlite"
"""The read side; deleted, it is built again from the log."""

PROJECTION_LOCK: Final = "projection.lock"
"""Locked by the process that writes the projection."""

HEAD: Final = "head.json"
"""The head that the last writer of this store has seen: a witness against a log cut short."""


AUTHORITY: Final = "tls/ca.crt"
"""The CA that the service made for itself."""

SHARED_CERTIFICATE: Final = "shared-tls/server.pem"
"""Certificate, chain and key that all replicas share, read from their Secret."""

_SHARED_AUTHORITY: Final = "shared-tls/ca.crt"


def authority(settings: Settings) -> Path:
    """Return the file with the CA of the certificate that the service or its replicas have made."""
    return Path(settings.store_dir) / (_SHARED_AUTHORITY if settings.tls_secret else AUTHORITY)


def prepare(settings: Settings) -> None:
    """Make the store directory, for its owner only. Raises OSError."""
    Path(settings.store_dir).mkdir(mode=0o700, parents=True, exist_ok=True)
