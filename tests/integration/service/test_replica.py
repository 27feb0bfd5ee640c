"""The replica on a real nats-server: who settles what."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from support.servers.nats_servers import NatsServer

from gpuledger.server.replica import LedgerReplica
from gpuledger.wiring.service_parts import LogServers
from ledger.log.writer.writer_observer import WriterObserver
from ledger.runtime.settings.settings import Settings

pytestmark = pytest.mark.integration


@contextlib.asynccontextmanager
async def kept(
    server: NatsServer, shard: str, store: Path, cluster: str
) -> AsyncIterator[LedgerReplica]:
    """A replica of a cluster on a shard that others may use, too."""
    settings = Settings(store_dir=str(store), shard=shard, cluster=cluster, nats=(server.url,))
    replica = LedgerReplica(
        settings, LogServers((server.url,), "", "", ()), observer=WriterObserver()
    )
    running = asyncio.create_task(replica.run())
    try:
        async with asyncio.timeout(30):
            await replica.opened.wait()
        yield replica
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


async def test_of_two_clusters_on_one_shard_each_is_settled(
    nats_server: NatsServer, shard: str, tmp_path: Path
) -> None:
    async with (
        kept(nats_server, shard, tmp_path / "east", "east") as east,
        kept(nats_server, shard, tmp_path / "west", "west") as west,
        kept(nats_server, shard, tmp_path / "spare", "west") as spare,
    ):
        assert [one.is_active() for one in (east, west, spare)] == [True, True, False]
        assert [one.owner is not None and one.owner.is_owner for one in (east, west)] == [
            True,
            False,
        ]
