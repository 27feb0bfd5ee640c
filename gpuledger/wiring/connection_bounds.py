"""Connection bounds: the most connections with and without a certificate, and descriptors."""

import resource
from functools import partial
from typing import Final

from ledger.runtime.http.acceptor import HANDSHAKES_MAX, AcceptorSettings
from ledger.runtime.metrics import Telemetry
from ledger.runtime.settings.settings import Settings

OTHER_FILES: Final = 512
"""File descriptors other than those of client connections."""

OTHERS_OF_ONE: Final = 0.25
"""Part of the connections without a certificate that one address may have."""


def acceptor_settings(settings: Settings, telemetry: Telemetry) -> AcceptorSettings:
    """Return the bounds of connections.

    Without a client CA the server cannot distinguish the API server from other clients, so all
    clients share one bound.
    """
    dropped = partial(telemetry.count, "connections_dropped_total")
    if not settings.client_ca:
        return AcceptorSettings(others_max=settings.connections_max, dropped=dropped)
    others = settings.connections_uncertified_max
    return AcceptorSettings(
        settings.connections_max,
        others,
        max(1, int(others * OTHERS_OF_ONE)),
        partial(_is_trusted, settings),
        dropped,
    )


def raise_descriptors(settings: Settings) -> None:
    """Raise the limit of file descriptors to one for each connection, as far as permitted."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    connections = settings.connections_max + settings.connections_uncertified_max
    wanted = connections + HANDSHAKES_MAX + OTHER_FILES
    if hard != resource.RLIM_INFINITY:
        wanted = min(wanted, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def _is_trusted(settings: Settings, name: str | None) -> bool:
    """Return whether a client with a certificate of this subject may send reviews."""
    subjects = settings.client_subjects
    return name is not None and (not subjects or name in subjects)
