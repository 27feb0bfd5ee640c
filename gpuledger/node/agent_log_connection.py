"""Agent's log connection: to given servers, or to a service on this machine.

An agent never starts a server. Beside a service, it connects to the address that the service's
file contains, and reconnects when that changes.
"""

import asyncio
import contextlib
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from msgspec.structs import replace

from gpuledger.wiring import log_from_settings
from ledger.log.embedded import server_files
from ledger.log.embedded.server_files import ServerAddress
from ledger.log.jetstream.jetstream_log import JetStreamLog
from ledger.log.log_port import Log, Unreachable
from ledger.runtime.settings.settings import Settings

INBOX: Final = "_AGENTS"
"""Prefix of the subjects of answers to agents, the only ones that nats.conf lets them read."""

LOOK_SECONDS: Final = 1.0
"""Interval at which the address of the service's server is checked."""


class AgentLog:
    """Connects to the log; `watch` closes a connection to a former address."""

    def __init__(self, settings: Settings) -> None:
        """Use the log of these settings."""
        self._settings = settings
        self._log: JetStreamLog | None = None
        self._address: ServerAddress | None = None

    async def connect(self) -> Log:
        """Connect to the log. Raises Unreachable."""
        self._log = await self._connected()
        return self._log

    async def watch(self) -> None:
        """Close the connection when the address of the service's server has changed, until
        cancelled.
        """
        while not self._settings.nats:
            await asyncio.sleep(LOOK_SECONDS)
            if self._log is not None and self._found() not in (None, self._address):
                log, self._log = self._log, None
                await log.close()

    async def _connected(self) -> JetStreamLog:
        if self._settings.nats:
            async with log_from_settings.log_servers(self._settings) as (servers, _):
                own = replace(servers, inbox=INBOX, consumers=False)
                return await log_from_settings.connect(self._settings, own)
        address = self._found()
        if address is None:
            raise Unreachable(
                f"no service runs in {self._settings.store_dir}: start `gpuledger serve` there, or"
                " name the log's servers with --nats (GPULEDGER_NATS)"
            )
        self._address = address
        return await log_from_settings.connect(self._settings, _reach(address))

    def _found(self) -> ServerAddress | None:
        with contextlib.suppress(ValueError, OSError):
            return server_files.read_address(Path(self._settings.store_dir))
        return None


def _reach(address: ServerAddress) -> log_from_settings.LogServers:
    monitors: Sequence[str] = (address.monitor_url,)
    servers = log_from_settings.LogServers(
        (address.url,), address.user, address.password, tuple(monitors)
    )
    return replace(servers, consumers=False)
