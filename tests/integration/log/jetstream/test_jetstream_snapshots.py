"""Snapshots in JetStream's second stream: unfinished, damaged and concurrent ones."""

import asyncio
import json

import pytest
from support.servers.nats_servers import NatsServer, settings_for

from ledger.log.jetstream.jetstream_log import JetStreamLog
from ledger.log.log_port import (
    Snapshot,
)

pytestmark = pytest.mark.integration


async def test_an_unfinished_snapshot_is_none(jetstream_log: JetStreamLog) -> None:
    await jetstream_log.save_snapshot(Snapshot(1, b"whole"))
    chunk = jetstream_log.names.chunk_subject
    manifest = jetstream_log.names.manifest_subject
    await jetstream_log.connection.request(chunk, b"half of something")
    await jetstream_log.connection.request(manifest, b"not a manifest")
    assert [snapshot.position for snapshot in await jetstream_log.load_snapshots()] == [1]


async def test_a_snapshot_with_a_piece_missing_is_none(
    jetstream_log: JetStreamLog, shard: str
) -> None:
    await jetstream_log.save_snapshot(Snapshot(1, b"older"))
    await jetstream_log.save_snapshot(Snapshot(2, b"newer" * 200_000))
    await jetstream_log.connection.api(f"STREAM.MSG.DELETE.LEDGER-{shard}-SNAP", {"seq": 3})
    assert [snapshot.position for snapshot in await jetstream_log.load_snapshots()] == [1]


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
    assert [snapshot.position for snapshot in await other.load_snapshots()] == [8, 7]
    await other.close()


async def test_a_slow_saver_keeps_its_pieces_though_a_quick_one_overtook_it(
    nats_server: NatsServer,
    jetstream_log: JetStreamLog,
    shard: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    other = await JetStreamLog.connect(settings_for(nats_server, shard))
    snapshots = jetstream_log._snapshots
    keep = snapshots._keep

    async def overtaken(subject: str, payload: bytes) -> int:
        if subject == jetstream_log.names.manifest_subject:
            await other.save_snapshot(Snapshot(1, b"quick"))
        return await keep(subject, payload)

    monkeypatch.setattr(snapshots, "_keep", overtaken)
    await jetstream_log.save_snapshot(Snapshot(2, b"slow"))
    assert [snapshot.payload for snapshot in await other.load_snapshots()] == [b"slow", b"quick"]
    await other.close()


async def test_old_snapshots_take_no_room(jetstream_log: JetStreamLog, shard: str) -> None:
    for position in range(1, 6):
        await jetstream_log.save_snapshot(Snapshot(position, b"state"))
    answer = json.loads(await jetstream_log.connection.api(f"STREAM.INFO.LEDGER-{shard}-SNAP"))
    assert answer["state"]["messages"] == 4
