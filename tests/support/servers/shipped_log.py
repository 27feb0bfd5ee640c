"""Shipped log: the log on the servers of deploy/nats.conf, for the service and for an agent."""

import asyncio
from typing import Final

import nats
from nats.aio.client import Client
from support.builders.decide_and_fold import record
from support.servers.nats_servers import settings_for
from support.servers.shipped_nats import AGENT_PASSWORD, PASSWORD, SERVERS, ShippedServer

from gpuledger.node.agent_log_connection import INBOX
from ledger.core import snapshot_format
from ledger.core.model.accounts import quota
from ledger.core.model.commands import SetLimits
from ledger.core.model.state import State
from ledger.log.jetstream.jetstream_log import JetStreamLog
from ledger.log.jetstream.nats_connection import Access
from ledger.log.log_port import Snapshot, Unreachable

AGENT: Final = "agent"
APIS: Final = ("$JS.API", "$JS.hub.API", "$JS.agents.API")
FORM_SECONDS: Final = 60
AGAIN_SECONDS: Final = 0.2


def access(servers: list[ShippedServer], user: str, password: str) -> Access:
    """Return how a user reaches all servers."""
    urls = tuple(server.url for server in servers)
    inbox = INBOX if user == AGENT else "_INBOX"
    return Access(urls, user=user, password=password, inbox_prefix=inbox)


async def agent_of(servers: list[ShippedServer]) -> Client:
    """Connect as a client that has the agents' password and sends any request it likes."""
    return await nats.connect(
        servers[0].url, user=AGENT, password=AGENT_PASSWORD, inbox_prefix=INBOX
    )


async def opened(servers: list[ShippedServer]) -> JetStreamLog:
    """Open the log as the service does in production, as soon as there is a leader."""
    settings = settings_for(
        servers[0],
        access=access(servers, "gpuledger", PASSWORD),
        monitor_urls=tuple(server.monitor_url for server in servers),
        replicas=SERVERS,
        production=True,
    )
    await asyncio.gather(*(server.ready() for server in servers))
    log = await JetStreamLog.connect(settings)
    async with asyncio.timeout(FORM_SECONDS):
        while True:
            try:
                await log.open(create=True)
                return log
            except Unreachable:
                await asyncio.sleep(AGAIN_SECONDS)


async def filled(servers: list[ShippedServer]) -> JetStreamLog:
    """Open the log, and give it a record and the snapshot after it, unless it has some."""
    log = await opened(servers)
    if (await log.extent()).last == 0:
        state = State()
        limits = {"limits.x/y": 1}
        payload = record(state, [SetLimits(quota("c1", "t", "q"), ("c1/t",), limits)])
        assert payload is not None
        await log.append(payload, 0)
        await log.save_snapshot(Snapshot(1, snapshot_format.encode(state)))
    return log
