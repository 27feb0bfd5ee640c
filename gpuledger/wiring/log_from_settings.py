"""Log from settings: its servers, the connection to it, and the bounds of a writer."""

import contextlib
import os
import secrets
import socket
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec

from ledger.log.embedded.nats_server import EmbeddedServer, EmbeddedSettings
from ledger.log.jetstream.jetstream_log import JetStreamLog, JetStreamSettings
from ledger.log.jetstream.missing_records import STALE_LEADER_SECONDS
from ledger.log.jetstream.nats_connection import Access
from ledger.log.writer.writer_settings import WriterSettings
from ledger.runtime.settings.settings import Settings


class LogServers(msgspec.Struct, frozen=True):
    """The servers of the log: given ones, or the embedded one that was started.

    `domain` is the JetStream domain that has the log, empty for that of the servers themselves, and
    `inbox` the prefix of the subjects of answers. Without `consumers` the log is
    read by single requests.
    """

    urls: tuple[str, ...]
    user: str
    password: str
    monitor_urls: tuple[str, ...]
    domain: str = ""
    inbox: str = "_INBOX"
    consumers: bool = True


@contextlib.asynccontextmanager
async def log_servers(
    settings: Settings,
) -> AsyncIterator[tuple[LogServers, EmbeddedServer | None]]:
    """Yield the servers of the settings, or start the embedded one for the block."""
    if settings.nats:
        yield _given(settings), None
        return
    server = EmbeddedServer(EmbeddedSettings(store=Path(settings.store_dir)))
    address = await server.start()
    try:
        yield (
            LogServers((address.url,), address.user, address.password, (address.monitor_url,)),
            server,
        )
    finally:
        await server.stop()


def _given(settings: Settings) -> LogServers:
    return LogServers(
        settings.nats,
        settings.nats_user,
        settings.nats_password,
        settings.nats_monitor,
        settings.nats_domain,
    )


async def connect(settings: Settings, servers: LogServers) -> JetStreamLog:
    """Connect to the log. Raises Unreachable."""
    access = Access(
        servers.urls,
        user=servers.user,
        password=servers.password,
        credentials=settings.nats_creds,
        login=settings.nats_login_file,
        ca=settings.nats_ca,
        inbox_prefix=servers.inbox,
    )
    return await JetStreamLog.connect(
        JetStreamSettings(
            access=access,
            shard=settings.shard,
            replicas=settings.replicas,
            max_bytes=settings.log_bytes_max,
            denials_days=settings.denials_days,
            monitor_urls=servers.monitor_urls,
            domain=servers.domain or None,
            production=settings.production,
            consumers=servers.consumers,
        )
    )


def writer_settings(settings: Settings) -> WriterSettings:
    """Return the writer's bounds."""
    return WriterSettings(
        group_commands_max=settings.group_commands_max,
        namespace_bytes_burst=settings.log_namespace_burst,
        namespace_bytes_rate=settings.log_namespace_rate,
        queue_commands_max=settings.queue_commands_max,
        queue_namespace_max=settings.queue_per_namespace_max,
        # The embedded server is alone; only among several can one be behind the others.
        behind_seconds_max=STALE_LEADER_SECONDS if settings.nats else 0.0,
    )


def replica_name() -> str:
    """Return a name for this process as a writer, unlike any other's."""
    return f"{socket.gethostname()[:32]}-{os.getpid()}-{secrets.token_hex(3)}"
