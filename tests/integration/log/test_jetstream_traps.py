"""What JetStream does that a ledger has to know; each trap once, on the real server."""

import asyncio
import contextlib
import json
import signal

import msgspec
import pytest
from nats.aio.msg import Msg
from structlog.testing import capture_logs
from support.servers.nats_servers import NatsServer, settings_for

from ledger.log.jetstream import consumer, streams
from ledger.log.jetstream.connection import Access
from ledger.log.jetstream.jetstream_log import JetStreamLog, _refusal
from ledger.log.jetstream.nats_errors import ApiError, ApiProblem
from ledger.log.jetstream.streams import ConfigurationDrift
from ledger.log.log_port import (
    Ambiguous,
    Full,
    LogError,
    Lost,
    PositionTaken,
    Snapshot,
    Unreachable,
    Unwritable,
)

pytestmark = pytest.mark.integration


async def edit(log: JetStreamLog, stream: str, **changes: object) -> None:
    """Change a stream's configuration as an administrator could."""
    info = json.loads(await log.connection.api(f"STREAM.INFO.{stream}"))
    await log.connection.api(f"STREAM.UPDATE.{stream}", info["config"] | changes)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("discard", "old"),
        ("max_age", 3_600_000_000_000),
        ("max_msgs", 10),
        ("max_msgs_per_subject", 1),
        ("subjects", ["ledger.SHARD.log", "ledger.SHARD.more"]),
        ("max_bytes", -1),
        ("max_msg_size", 1_000),
        ("allow_direct", False),
        ("sealed", True),
        ("no_ack", True),
    ],
)
async def test_a_changed_configuration_is_refused_by_name_and_values(
    jetstream_log: JetStreamLog, shard: str, field: str, value: object
) -> None:
    changed = json.loads(json.dumps(value).replace("SHARD", shard))
    await edit(jetstream_log, f"LEDGER-{shard}", **{field: changed})
    with pytest.raises(ConfigurationDrift, match=f"LEDGER-{shard}: .*{field} is .*wanted"):
        await jetstream_log.open(create=True)


@pytest.mark.parametrize(
    "change",
    [
        {"allow_rollup_hdrs": True, "deny_purge": False},
        {"deny_delete": False},
        {"deny_purge": False},
        {"storage": "memory"},
        {"allow_msg_ttl": True},
        {"allow_atomic": True},
        {"persist_mode": "async"},
        {"first_seq": 1_000},
        {"compression": "none"},
        {"retention": "workqueue"},
    ],
    ids=lambda change: next(iter(change)),
)
async def test_a_stream_that_somebody_made_otherwise_is_refused(
    nats_server: NatsServer, shard: str, change: dict[str, object]
) -> None:
    log = await JetStreamLog.connect(settings_for(nats_server, shard))
    wanted = streams.log_stream(log.names, 1, log.settings.max_bytes)
    made = msgspec.to_builtins(wanted) | change
    await log.connection.api(f"STREAM.CREATE.{wanted.name}", made)
    with pytest.raises(ConfigurationDrift, match=f"{next(iter(change))} is "):
        await log.open(create=False)
    await log.close()


async def test_a_larger_maximum_is_no_drift(jetstream_log: JetStreamLog, shard: str) -> None:
    await edit(jetstream_log, f"LEDGER-{shard}", max_bytes=128 * 1024**2)
    await jetstream_log.open(create=False)
    assert (await jetstream_log.extent()).size_max == 128 * 1024**2


async def test_an_administrator_cannot_purge_or_delete_records(
    jetstream_log: JetStreamLog, shard: str
) -> None:
    await jetstream_log.append(b"kept", 0)
    with pytest.raises(ApiError, match="10110"):
        await jetstream_log.connection.api(f"STREAM.PURGE.LEDGER-{shard}")
    with pytest.raises(ApiError, match="10057"):
        await jetstream_log.connection.api(f"STREAM.MSG.DELETE.LEDGER-{shard}", {"seq": 1})
    assert await jetstream_log.get(1) == b"kept"


async def test_a_full_log_refuses_and_keeps_its_history(
    nats_server: NatsServer, shard: str
) -> None:
    log = await JetStreamLog.connect(settings_for(nats_server, shard, max_bytes=100_000))
    await log.open(create=True)
    last = await fill(log)
    with pytest.raises(Full, match="max_bytes"):
        await log.append(b"x" * 1_000, last)
    extent = await log.extent()
    assert (extent.first, extent.last, extent.size_max) == (1, last, 100_000)
    assert await log.get(1) == b"x" * 1_000
    await edit(log, f"LEDGER-{shard}", max_bytes=200_000)
    assert await log.append(b"y", last) == last + 1
    await log.close()


async def fill(log: JetStreamLog) -> int:
    """Append until the log is full. Returns where it ends."""
    last = 0
    with contextlib.suppress(Full):
        while last < 1_000:
            last = await log.append(b"x" * 1_000, last)
    return last


@pytest.mark.parametrize(
    ("code", "description", "meaning"),
    [
        (10071, "wrong last sequence: 5", PositionTaken),
        (10164, "wrong last sequence", PositionTaken),
        (10158, "duplicate message id is in process", Ambiguous),
        (10077, "maximum bytes exceeded", Full),
        (10077, "no space left on device", Ambiguous),
        (10047, "insufficient storage resources available", Unwritable),
        (10060, "expected stream does not match", Lost),
        (10059, "stream not found", Lost),
        (19999, "an error of a later server", Ambiguous),
    ],
)
def test_each_refusal_says_what_the_writer_must_do(
    code: int, description: str, meaning: type[LogError]
) -> None:
    error = _refusal(ApiProblem(code, description), 7)
    assert type(error) is meaning
    assert "position 7" in str(error)
    assert str(code) in str(error)


async def test_another_stream_on_the_subject_is_noticed(
    nats_server: NatsServer, shard: str
) -> None:
    log = await JetStreamLog.connect(settings_for(nats_server, shard))
    await log.connection.api(
        f"STREAM.CREATE.IMPOSTOR-{shard}",
        {"name": f"IMPOSTOR-{shard}", "subjects": [f"ledger.{shard}.log"], "storage": "memory"},
    )
    with pytest.raises(Lost, match="10060"):
        await log.append(b"x", 0)
    await log.close()


async def test_an_acknowledgement_of_another_position_is_noticed(
    nats_server: NatsServer, shard: str
) -> None:
    log = await JetStreamLog.connect(settings_for(nats_server, shard))

    async def answer(message: Msg) -> None:
        await message.respond(b'{"stream": "LEDGER-%s", "seq": 99}' % shard.encode())

    await log.connection.subscribe(f"ledger.{shard}.log", answer)
    with pytest.raises(Lost, match="position 1 was stored as 99"):
        await log.append(b"x", 0)
    await log.close()


async def unprotected(server: NatsServer, shard: str) -> JetStreamLog:
    """A log of three records whose stream lets an administrator remove some."""
    log = await JetStreamLog.connect(settings_for(server, shard))
    wanted = streams.log_stream(log.names, 1, log.settings.max_bytes)
    weak = msgspec.structs.replace(wanted, deny_delete=False, deny_purge=False)
    await log.connection.api(f"STREAM.CREATE.{wanted.name}", weak)
    for expected in range(3):
        await log.append(b"x", expected)
    return log


async def test_a_record_missing_in_the_middle_is_noticed(
    nats_server: NatsServer, shard: str
) -> None:
    log = await unprotected(nats_server, shard)
    await log.connection.api(f"STREAM.MSG.DELETE.LEDGER-{shard}", {"seq": 2})
    async with contextlib.aclosing(consumer.read(log._log, 1, 3)) as batches:
        with pytest.raises(Lost, match="position 2: the record is missing"):
            [batch async for batch in batches]
    await log.close()


async def test_records_missing_at_the_beginning_are_noticed(
    nats_server: NatsServer, shard: str
) -> None:
    log = await unprotected(nats_server, shard)
    await log.connection.api(f"STREAM.PURGE.LEDGER-{shard}", {"seq": 4})
    async with asyncio.timeout(10), contextlib.aclosing(consumer.follow(log._log, 1)) as batches:
        with pytest.raises(Lost, match="begins at 4, position 1 is missing"):
            await anext(batches)
    await log.close()


async def test_a_log_without_its_stream_takes_nothing(nats_server: NatsServer, shard: str) -> None:
    log = await JetStreamLog.connect(settings_for(nats_server, shard))
    with pytest.raises(Unreachable, match="no responders"):
        await log.append(b"x", 0)
    with pytest.raises(Lost, match="does not exist"):
        await log.extent()
    await log.close()


async def test_a_lost_store_is_not_quietly_made_anew(own_server: NatsServer) -> None:
    settings = settings_for(own_server)
    log = await JetStreamLog.connect(settings)
    await log.open(create=True)
    await log.append(b"x", 0)
    await log.close()
    own_server.kill()
    own_server.lose_store()
    await own_server.start()
    log = await JetStreamLog.connect(settings)
    with pytest.raises(Lost, match="restore"):
        await log.open(create=False)
    with pytest.raises(Lost):
        await log.extent()
    await log.close()


async def test_acknowledged_records_survive_the_servers_death(own_server: NatsServer) -> None:
    log = await JetStreamLog.connect(settings_for(own_server, deadline=1.0))
    await log.open(create=True)
    last = 0
    for _ in range(3):
        for _ in range(50):
            last = await log.append(f"{last + 1}".encode(), last)
        own_server.kill()
        await own_server.start()
        await reached(log, last)
    async with contextlib.aclosing(consumer.read(log._log, 1, last)) as batches:
        found = [entry.payload async for batch in batches for entry in batch]
    assert found == [f"{position}".encode() for position in range(1, last + 1)]
    await log.close()


async def reached(log: JetStreamLog, last: int) -> None:
    """Wait until the log answers again, and check where it ends."""
    async with asyncio.timeout(20):
        while True:
            try:
                assert (await log.extent()).last == last
                return
            except Unreachable:
                await asyncio.sleep(0.05)


async def test_a_follower_goes_on_where_it_was_after_a_restart(own_server: NatsServer) -> None:
    log = await JetStreamLog.connect(settings_for(own_server, deadline=2.0))
    await log.open(create=True)
    await log.append(b"1", 0)
    async with asyncio.timeout(30), contextlib.aclosing(consumer.follow(log._log, 1)) as batches:
        assert [entry.payload for entry in await anext(batches)] == [b"1"]
        own_server.kill()
        await own_server.start()
        await reached(log, 1)
        await log.append(b"2", 1)
        assert [entry.payload for entry in await anext(batches)] == [b"2"]
    await log.close()


async def test_a_follower_stops_when_the_store_was_lost_below_it(own_server: NatsServer) -> None:
    log = await JetStreamLog.connect(settings_for(own_server, deadline=2.0))
    await log.open(create=True)
    for expected in range(5):
        await log.append(b"x", expected)
    async with asyncio.timeout(30), contextlib.aclosing(consumer.follow(log._log, 1)) as batches:
        await anext(batches)
        own_server.kill()
        own_server.lose_store()
        await own_server.start()
        with pytest.raises(Lost):
            await anext(batches)
    await log.close()


async def test_an_append_to_a_dead_server_ends_and_is_not_sent_later(
    own_server: NatsServer,
) -> None:
    log = await JetStreamLog.connect(settings_for(own_server, deadline=1.0))
    await log.open(create=True)
    own_server.kill()
    async with asyncio.timeout(10):
        with pytest.raises((Ambiguous, Unreachable)):
            await log.append(b"first", 0)
        with pytest.raises(Unreachable, match=r"127\.0\.0\.1"):
            await log.append(b"second", 0)
    await own_server.start()
    await reached(log, 0)
    await log.close()


async def test_an_append_that_is_not_answered_is_ambiguous(own_server: NatsServer) -> None:
    log = await JetStreamLog.connect(settings_for(own_server, deadline=0.5))
    await log.open(create=True)
    assert own_server.process is not None
    own_server.process.send_signal(signal.SIGSTOP)
    try:
        with pytest.raises(Ambiguous, match=r"0\.5 s"):
            await log.append(b"x", 0)
    finally:
        own_server.process.send_signal(signal.SIGCONT)
    await log.close()


async def test_a_slow_reader_holds_the_server_back_and_misses_nothing(
    jetstream_log: JetStreamLog, shard: str
) -> None:
    last = 0
    payload = b"x" * 400_000
    for _ in range(120):
        last = await jetstream_log.append(payload, last)
    async with contextlib.aclosing(consumer.read(jetstream_log._log, 1, last)) as batches:
        count = len(await anext(batches))
        assert await settled_backlog(jetstream_log, shard) > 0
        async for batch in batches:
            count += len(batch)
    assert count == 120


async def settled_backlog(log: JetStreamLog, shard: str) -> int:
    """Wait until the one consumer's backlog no longer shrinks, and return it, in messages."""
    before = -1
    while True:
        answer = json.loads(await log.connection.api(f"CONSUMER.LIST.LEDGER-{shard}"))
        backlog = int(answer["consumers"][0]["num_pending"])
        if backlog == before:
            return backlog
        before = backlog
        await asyncio.sleep(0.2)


async def test_an_unfinished_snapshot_is_none(jetstream_log: JetStreamLog) -> None:
    await jetstream_log.save_snapshot(Snapshot(1, b"whole"))
    chunk = jetstream_log.names.chunk_subject
    manifest = jetstream_log.names.manifest_subject
    await jetstream_log.connection.request(chunk, b"half of something")
    await jetstream_log.connection.request(manifest, b"not a manifest")
    assert [found.position for found in await jetstream_log.load_snapshots()] == [1]


async def test_a_snapshot_with_a_piece_missing_is_none(
    jetstream_log: JetStreamLog, shard: str
) -> None:
    await jetstream_log.save_snapshot(Snapshot(1, b"older"))
    await jetstream_log.save_snapshot(Snapshot(2, b"newer" * 200_000))
    await jetstream_log.connection.api(f"STREAM.MSG.DELETE.LEDGER-{shard}-SNAP", {"seq": 3})
    assert [found.position for found in await jetstream_log.load_snapshots()] == [1]


async def test_savers_at_the_same_time_leave_whole_snapshots(
    nats_server: NatsServer, jetstream_log: JetStreamLog, shard: str
) -> None:
    other = await JetStreamLog.connect(settings_for(nats_server, shard))
    await asyncio.gather(
        *(
            log.save_snapshot(Snapshot(position, f"{position}".encode() * 400_000))
            for position, log in enumerate((jetstream_log, other) * 3, start=1)
        )
    )
    await jetstream_log.save_snapshot(Snapshot(7, b"seventh"))
    await other.save_snapshot(Snapshot(8, b"eighth"))
    assert [found.position for found in await other.load_snapshots()] == [8, 7]
    await other.close()


async def test_a_slow_saver_keeps_its_pieces_though_a_quick_one_overtook_it(
    nats_server: NatsServer,
    jetstream_log: JetStreamLog,
    shard: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    other = await JetStreamLog.connect(settings_for(nats_server, shard))
    keep = jetstream_log._keep

    async def overtaken(subject: str, payload: bytes) -> int:
        if subject == jetstream_log.names.manifest_subject:
            await other.save_snapshot(Snapshot(1, b"quick"))
        return await keep(subject, payload)

    monkeypatch.setattr(jetstream_log, "_keep", overtaken)
    await jetstream_log.save_snapshot(Snapshot(2, b"slow"))
    assert [found.payload for found in await other.load_snapshots()] == [b"slow", b"quick"]
    await other.close()


async def test_old_snapshots_take_no_room(jetstream_log: JetStreamLog, shard: str) -> None:
    for position in range(1, 6):
        await jetstream_log.save_snapshot(Snapshot(position, b"state"))
    answer = json.loads(await jetstream_log.connection.api(f"STREAM.INFO.LEDGER-{shard}-SNAP"))
    assert answer["state"]["messages"] == 4


async def test_syncing_every_write_is_seen(jetstream_log: JetStreamLog) -> None:
    found = await jetstream_log.durability()
    assert (found.sync_always, found.problems) == (True, ())
    assert found.server_version.startswith("2.")


async def test_a_server_that_syncs_later_is_a_problem(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    server = NatsServer(tmp_path_factory.mktemp("lazy"), sync="1m")
    await server.start()
    try:
        log = await JetStreamLog.connect(settings_for(server))
        await log.open(create=True)
        found = await log.durability()
        await log.close()
    finally:
        server.stop()
    assert found.sync_always is False
    assert "sync_interval: always" in found.problems[0]


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"monitor_urls": ()}, "monitoring addresses"),
        ({"monitor_urls": ("http://127.0.0.1:1",)}, "http://127.0.0.1:1 does not answer"),
        ({"production": True}, "production needs 3"),
    ],
)
async def test_what_is_not_known_or_not_enough_is_a_problem(
    nats_server: NatsServer, shard: str, changes: dict[str, object], problem: str
) -> None:
    log = await JetStreamLog.connect(settings_for(nats_server, shard, **changes))
    await log.open(create=True)
    assert problem in (await log.durability()).problems[0]
    await log.close()


PERMISSIONS = """
authorization {
  users: [
    { user: "admin", password: "a" }
    { user: "reader", password: "r", permissions: {
        publish: { deny: ["ledger.main.log", "$JS.API.STREAM.DELETE.>"] } } }
  ]
}
"""


async def test_a_denied_publish_is_reported_with_its_reason(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    server = NatsServer(tmp_path_factory.mktemp("users"), extra=PERMISSIONS)
    await server.start()
    try:
        access = Access((server.url,), user="admin", password="a")
        admin = await JetStreamLog.connect(settings_for(server, access=access))
        await admin.open(create=True)
        await admin.close()
        access = Access((server.url,), user="reader", password="r")
        reader = await JetStreamLog.connect(settings_for(server, access=access, deadline=1.0))
        with capture_logs() as logged, pytest.raises(Ambiguous):
            await reader.append(b"x", 0)
        assert (await reader.extent()).last == 0
        await reader.close()
    finally:
        server.stop()
    assert any("permissions violation" in entry.get("error", "").lower() for entry in logged)


async def test_a_wrong_password_is_named_and_not_shown(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    server = NatsServer(tmp_path_factory.mktemp("secret"), extra=PERMISSIONS)
    await server.start()
    try:
        url = server.url.replace("//", "//admin:secret@")
        with pytest.raises(Unreachable, match="Authorization Violation") as refused:
            await JetStreamLog.connect(settings_for(server, access=Access((url,)), deadline=1.0))
    finally:
        server.stop()
    assert "secret" not in str(refused.value)


async def test_a_server_that_is_not_there_is_named(nats_server: NatsServer) -> None:
    access = Access(("nats://127.0.0.1:1",))
    with pytest.raises(Unreachable, match=r"127\.0\.0\.1:1"):
        await JetStreamLog.connect(settings_for(nats_server, access=access, deadline=0.5))
