"""Surveys of the schemas that replicas read, over a real server, and the refusal to raise."""

import asyncio
import secrets
from collections.abc import AsyncIterator

import pytest
from support.servers.nats_servers import NatsServer, settings_for

from gpuledger.changes import raised_schema
from gpuledger.cli.exit_codes import CommandError
from ledger.log import record_schema
from ledger.log.jetstream.jetstream_log import JetStreamLog
from ledger.log.peers import lease, schema_survey
from ledger.log.peers.lease import Lease
from ledger.log.peers.schema_survey import ReplicaSchema, SchemaAnnouncer

pytestmark = pytest.mark.integration

NOW = record_schema.SCHEMA
ANSWERED_SECONDS = 0.5


@pytest.fixture
async def connected(nats_server: NatsServer, shard: str) -> AsyncIterator[list[JetStreamLog]]:
    """Return three clients of one log."""
    clients = [await JetStreamLog.connect(settings_for(nats_server, shard)) for _ in range(3)]
    await clients[0].open(create=True)
    yield clients
    for client in clients:
        await client.close()


@pytest.fixture
def log(connected: list[JetStreamLog]) -> JetStreamLog:
    return connected[0]


async def announce(client: JetStreamLog, replica: str) -> None:
    await SchemaAnnouncer(client.connection, client.names, replica=replica).start()


async def test_every_replica_answers_with_the_schema_that_it_reads(
    connected: list[JetStreamLog], monkeypatch: pytest.MonkeyPatch
) -> None:
    log, first, second = connected
    assert await schema_survey.survey(log.connection, log.names, ANSWERED_SECONDS) == []
    await announce(first, "a")
    monkeypatch.setattr(record_schema, "SCHEMA", NOW - 1)
    await announce(second, "b")
    await log.connection.publish(log.names.survey_subject, b"not a nonce > *")
    answers: list[ReplicaSchema] = []
    async with asyncio.timeout(60):
        while len(answers) < 2:
            answers = await schema_survey.survey(log.connection, log.names, ANSWERED_SECONDS)
    assert answers == [ReplicaSchema("a", NOW), ReplicaSchema("b", NOW - 1)]


async def test_an_unreadable_answer_is_ignored(
    log: JetStreamLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(secrets, "token_hex", lambda _: "0" * 16)
    answering = SchemaAnnouncer(log.connection, log.names, replica="a")
    answering._answer = b"\xff\xff"
    await answering.start()
    assert await schema_survey.survey(log.connection, log.names, ANSWERED_SECONDS) == []


async def test_the_preferred_writer_is_found_by_its_lease(log: JetStreamLog) -> None:
    assert await lease.owner_of(log.connection, log.names) == ""
    held = Lease(log.connection, log.names, writer="a")
    await held.start()
    assert await lease.owner_of(log.connection, log.names) == "a"
    await held.stop()


@pytest.mark.parametrize(
    ("answered", "owner", "refusal"),
    [
        ([ReplicaSchema("a", NOW)], "a", ""),
        ([ReplicaSchema("a", NOW)], "", "no replica is the preferred writer now"),
        ([], "", "no replica is the preferred writer now"),
        ([ReplicaSchema("a", NOW), ReplicaSchema("b", NOW - 1)], "a", "replica b reads records"),
        ([ReplicaSchema("a", NOW)], "b", "replica b, the preferred writer, did not answer"),
    ],
)
def test_the_schema_is_raised_only_if_all_that_are_seen_read_it(
    answered: list[ReplicaSchema], owner: str, refusal: str
) -> None:
    if not refusal:
        raised_schema._must_read(answered, owner)
        return
    with pytest.raises(CommandError, match=f"{refusal}.*; nothing was changed"):
        raised_schema._must_read(answered, owner)
