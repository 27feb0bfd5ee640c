"""Leaf node: a hub with the log and an edge connected to it, over a link that a test can cut."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import NamedTuple

import aiohttp
import msgspec
from support.servers.nats_servers import NatsServer
from support.servers.ports import free_port
from support.servers.tcp_proxy import TcpProxy, tcp_proxy

DOMAIN = "hub"

LINK_SECONDS = 20.0

_PINGS = 'ping_interval: "1s"\nping_max: 2\n'
"""A stalled link is found dead after about three seconds, instead of six minutes."""


class Clusters(NamedTuple):
    """The servers of two clusters and the link between them."""

    hub: NatsServer
    edge: NatsServer
    between: TcpProxy


def servers(
    directory: Path, *, leaf_port: int, link_port: int, edge_jetstream: str | None = "domain: edge"
) -> tuple[NatsServer, NatsServer]:
    """Make both servers; `edge_jetstream` goes into the edge's own block, None for no JetStream."""
    hub = NatsServer(
        directory / "hub",
        jetstream=f"domain: {DOMAIN}",
        # Advertised, the hub's own port would lead the edge around the link.
        extra=f'leafnodes {{ listen: "127.0.0.1:{leaf_port}", no_advertise: true }}\n{_PINGS}',
    )
    edge = NatsServer(
        directory / "edge",
        jetstream=edge_jetstream,
        extra="leafnodes { reconnect: 1, remotes: ["
        f' {{ url: "nats-leaf://127.0.0.1:{link_port}" }} ] }}\n{_PINGS}',
    )
    return hub, edge


async def joined(edge: NatsServer) -> None:
    """Wait until the edge's leaf node is connected."""
    give_up = time.monotonic() + LINK_SECONDS
    async with aiohttp.ClientSession() as session:
        while True:
            async with session.get(f"{edge.monitor_url}/leafz") as answer:
                if msgspec.json.decode(await answer.read())["leafnodes"]:
                    return
            assert time.monotonic() < give_up, (edge.directory / "log").read_text()[-2000:]
            await asyncio.sleep(0.02)


@contextlib.asynccontextmanager
async def clusters(directory: Path, **more: str | None) -> AsyncIterator[Clusters]:
    """Run both servers for the block, with a link between them."""
    leaf_port, link_port = free_port(), free_port()
    hub, edge = servers(directory, leaf_port=leaf_port, link_port=link_port, **more)
    await hub.start()
    try:
        async with tcp_proxy(leaf_port, link_port) as between:
            await edge.start()
            await joined(edge)
            yield Clusters(hub, edge, between)
    finally:
        edge.stop()
        hub.stop()
