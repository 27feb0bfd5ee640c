"""The replica on a real nats-server: who settles what."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from support.servers.nats_servers import NatsServer

from gpuledger.server.ledger_replica import LedgerReplica
from gpuledger.wiring.log_from_settings import LogServers
from ledger.log.writer.writer_observer import WriterObserver
from ledger.runtime.settings.settings import Settings

pytestmark = pytest.mark.integration


@contextlib.asynccontextmanager
async def kept(
    server: NatsServer, shard: str, store: Path, cluster: str, *, settles: bool = True
) -> AsyncIterator[LedgerReplica]:
    """A replica of a cluster on a shard that others may use, too."""
    settings = Settings(store_dir=str(store), shard=shard, cluster=cluster, nats=(server.url,))
    replica = LedgerReplica(
        settings,
        LogServers((server.url,), "", "", ()),
        observer=WriterObserver(),
        settles=settles,
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
        assert [replica.is_active() for replica in (east, west, spare)] == [True, True, False]
        assert [
            replica.owner is not None and replica.owner.is_owner for replica in (east, west)
        ] == [
            True,
            False,
        ]


async def test_an_extender_leaves_both_leases_to_the_service(
    nats_server: NatsServer, shard: str, tmp_path: Path
) -> None:
    async with (
        kept(nats_server, shard, tmp_path / "extender", "east", settles=False) as extender,
        kept(nats_server, shard, tmp_path / "service", "east") as service,
    ):
        assert [replica.is_owner() for replica in (extender, service)] == [False, True]
        assert [replica.is_active() for replica in (extender, service)] == [False, True]
