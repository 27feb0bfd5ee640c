"""A stream that the server reports as missing: lost, or not reported yet."""

import asyncio

import msgspec
import pytest

from ledger.log.jetstream import jetstream_api, missing_records
from ledger.log.jetstream.missing_records import MissingStream, Stream
from ledger.log.jetstream.nats_connection import Access, NatsConnection
from ledger.log.jetstream.nats_errors import ApiError
from ledger.log.jetstream.stream_configuration import StreamNames, log_stream
from ledger.log.log_port import StreamMissing, Unreachable

NAMES = StreamNames("s")
WANTED = log_stream(NAMES, 3, 1_000_000)
STATE = {"first_seq": 0, "last_seq": 0, "bytes": 0}


class LaggingServers(NatsConnection):
    """Servers whose leader reports no stream, but whose stream leader acknowledges a creation."""

    def __init__(self) -> None:
        super().__init__(Access(()), 1.0)
        self.created: list[object] = []

    async def api(
        self, verb: str, body: object = None, *, near: bool = False, again: bool = False
    ) -> bytes:
        if verb.startswith("STREAM.CREATE."):
            self.created.append(body)
            return msgspec.json.encode({"config": body, "state": STATE})
        raise ApiError(verb, jetstream_api.STREAM_NOT_FOUND, description="stream not found")


async def test_stream_is_found_when_its_creation_is_not_reported_yet() -> None:
    servers = LaggingServers()
    await jetstream_api.ensure(servers, WANTED, create=True)
    assert servers.created == [WANTED]


async def test_stream_is_missing_when_it_may_not_be_created() -> None:
    with pytest.raises(StreamMissing, match="LEDGER-s does not exist"):
        await jetstream_api.ensure(LaggingServers(), WANTED, create=False)


@pytest.mark.parametrize(("contiguous", "expected"), [(True, StreamMissing), (False, Unreachable)])
async def test_only_the_stream_of_records_can_be_lost(
    contiguous: bool, expected: type[Exception]
) -> None:
    stream = Stream(LaggingServers(), "S", contiguous)
    with pytest.raises(expected, match="S does not exist"):
        await missing_records.confirmed_extent(stream, 1, 0)


def attempt(missing: MissingStream) -> None:
    with missing.retried():
        raise StreamMissing("gone")


async def test_missing_stream_is_lost_at_once_when_it_has_one_replica() -> None:
    with pytest.raises(StreamMissing):
        attempt(MissingStream(replicas=1))


async def test_missing_stream_is_lost_when_it_stays_missing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(missing_records, "STALE_LEADER_SECONDS", 0.05)
    missing = MissingStream(replicas=3)
    with pytest.raises(Unreachable):
        attempt(missing)
    await asyncio.sleep(0.06)
    with pytest.raises(StreamMissing):
        attempt(missing)


async def test_missing_stream_is_retried_again_when_it_was_found_between(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(missing_records, "STALE_LEADER_SECONDS", 0.05)
    missing = MissingStream(replicas=3)
    with pytest.raises(Unreachable):
        attempt(missing)
    with missing.retried():
        await asyncio.sleep(0.06)
    with pytest.raises(Unreachable):
        attempt(missing)
