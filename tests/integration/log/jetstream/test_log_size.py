"""How large the log may get and how long denials are kept, when the settings change later."""

import os

import msgspec
import pytest
from support.servers.nats_servers import NatsServer, settings_for

from ledger.log.jetstream import jetstream_api
from ledger.log.jetstream.jetstream_log import JetStreamLog
from ledger.log.log_port import Full

pytestmark = pytest.mark.integration

RECORD_BYTES = 20_000


async def fill(log: JetStreamLog) -> int:
    """Append until the log refuses; return the last position."""
    for position in range(1_000):
        try:
            await log.append(os.urandom(RECORD_BYTES), position)
        except Full:
            return position
    raise AssertionError("the log was never full")


async def test_the_service_raises_the_maximum_of_a_log_that_is_full(
    nats_server: NatsServer, shard: str
) -> None:
    small = await JetStreamLog.connect(settings_for(nats_server, shard, max_bytes=100_000))
    settings = settings_for(nats_server, shard, max_bytes=2_000_000, denials_days=7)
    large = await JetStreamLog.connect(settings)
    try:
        await small.open(create=True)
        last = await fill(small)
        before = await jetstream_api.configuration(small.connection, small.names.log)
        await large.open(create=False)
        await large.adjust()
        assert await large.append(os.urandom(RECORD_BYTES), last) == last + 1
        after = await jetstream_api.configuration(large.connection, large.names.log)
        assert after == msgspec.structs.replace(before, max_bytes=2_000_000)
        denials = await jetstream_api.configuration(large.connection, large.names.denials)
        assert denials.max_age == 7 * 24 * 3600 * 10**9
        await small.adjust()
        assert (await large.extent()).size_max == 2_000_000
    finally:
        await small.close()
        await large.close()


async def test_a_server_without_the_room_leaves_the_log_as_large_as_it_was(
    jetstream_log: JetStreamLog, nats_server: NatsServer, shard: str
) -> None:
    size = (await jetstream_log.extent()).size_max
    greedy = await JetStreamLog.connect(settings_for(nats_server, shard, max_bytes=2**60))
    try:
        await greedy.adjust()
        assert (await greedy.extent()).size_max == size
    finally:
        await greedy.close()
