"""Streams and servers whose configuration is not the ledger's: the log refuses or reports them."""

import contextlib
import json

import msgspec
import pytest
from structlog.testing import capture_logs
from support.servers.nats_servers import NatsServer, settings_for

from ledger.log.jetstream import jetstream_api, stream_configuration
from ledger.log.jetstream.jetstream_log import JetStreamLog
from ledger.log.jetstream.nats_connection import Access
from ledger.log.jetstream.nats_errors import ApiError
from ledger.log.jetstream.stream_configuration import ConfigurationDrift
from ledger.log.log_port import (
    Ambiguous,
    Full,
    Unreachable,
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
        {"retention": "workqueue"},
    ],
    ids=lambda change: next(iter(change)),
)
async def test_a_stream_with_another_configuration_is_refused(
    nats_server: NatsServer, shard: str, change: dict[str, object]
) -> None:
    log = await JetStreamLog.connect(settings_for(nats_server, shard))
    wanted = stream_configuration.log_stream(log.names, 1, log.settings.max_bytes)
    made = msgspec.to_builtins(wanted) | change
    await log.connection.api(f"STREAM.CREATE.{wanted.name}", made)
    with pytest.raises(ConfigurationDrift, match=f"{next(iter(change))} is "):
        await log.open(create=False)
    await log.close()


async def test_the_service_ends_the_compression_of_an_older_log(
    nats_server: NatsServer, shard: str
) -> None:
    log = await JetStreamLog.connect(settings_for(nats_server, shard))
    wanted = stream_configuration.log_stream(log.names, 1, log.settings.max_bytes)
    made = msgspec.to_builtins(wanted) | {"compression": "s2"}
    await log.connection.api(f"STREAM.CREATE.{wanted.name}", made)
    await log.open(create=False)
    await log.append(b"before", 0)
    await log.adjust()
    await log.append(b"after", 1)
    assert await jetstream_api.configuration(log.connection, wanted.name) == wanted
    assert [await log.get(position) for position in (1, 2)] == [b"before", b"after"]
    await log.close()


async def test_a_larger_maximum_is_accepted(jetstream_log: JetStreamLog, shard: str) -> None:
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


async def test_syncing_every_write_is_seen(jetstream_log: JetStreamLog) -> None:
    durability = await jetstream_log.durability()
    assert (durability.sync_always, durability.problems) == (True, ())
    assert durability.server_version.startswith("2.")


async def test_a_server_that_syncs_later_is_a_problem(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    server = NatsServer(tmp_path_factory.mktemp("lazy"), sync="1m")
    await server.start()
    try:
        log = await JetStreamLog.connect(settings_for(server))
        await log.open(create=True)
        durability = await log.durability()
        await log.close()
    finally:
        server.stop()
    assert durability.sync_always is False
    assert "sync_interval: always" in durability.problems[0]


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
