"""Store layout: the files of a store directory that are not the embedded server's own."""

from typing import Final

PROJECTION: Final = "projection.sqlite"
"""The read side; deleted, it is built again from the log."""

PROJECTION_LOCK: Final = "projection.lock"
"""Locked by the process that writes the projection."""

HEAD: Final = "head.json"
"""The head that the last writer of this store has seen: a witness against a log cut short."""


AUTHORITY: Final = "tls/ca.crt"
"""The CA that the service made for itself."""
