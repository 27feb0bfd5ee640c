"""A real nats-server for the session, and logs on it."""

import asyncio
import itertools
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from support.servers import leaf_node
from support.servers.nats_servers import NatsServer, settings_for
from support.servers.ports import free_port

from ledger.log.jetstream.jetstream_log import JetStreamLog

_shards = itertools.count(1)


@pytest.fixture
def tmp_path() -> Iterator[Path]:
    """Return a short path: that of a Unix socket may have 107 characters, and pytest adds many."""
    with TemporaryDirectory(prefix="t-", ignore_cleanup_errors=True) as directory:
        yield Path(directory)


@pytest.fixture(scope="session")
def nats_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NatsServer]:
    """One server for the whole session; tests use shards of their own and never stop it."""
    server = NatsServer(tmp_path_factory.mktemp("nats"))
    server.launch()
    asyncio.run(server.ready())
    yield server
    server.stop()


@pytest.fixture(scope="session")
def edge_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NatsServer]:
    """The edge of a hub for the session: its clients find the log in the hub's domain."""
    port = free_port()
    hub, edge = leaf_node.servers(tmp_path_factory.mktemp("leaf"), leaf_port=port, link_port=port)
    hub.launch()
    asyncio.run(hub.ready())
    edge.launch()
    asyncio.run(edge.ready())
    asyncio.run(leaf_node.joined(edge))
    yield edge
    edge.stop()
    hub.stop()


@pytest.fixture
async def own_server(tmp_path: Path) -> AsyncIterator[NatsServer]:
    """A server of the test's own, that it may kill."""
    server = NatsServer(tmp_path / "nats")
    await server.start()
    yield server
    server.stop()


@pytest.fixture
def shard() -> str:
    """Name a shard that no other test uses."""
    return f"t{next(_shards)}"


@pytest.fixture
async def jetstream_log(nats_server: NatsServer, shard: str) -> AsyncIterator[JetStreamLog]:
    """An opened, empty log on the session's server."""
    log = await JetStreamLog.connect(settings_for(nats_server, shard))
    await log.open(create=True)
    yield log
    await log.close()
