"""Snapshots in JetStream's second stream: unfinished, damaged and concurrent ones."""

import asyncio
import hashlib
import json
import random
from contextlib import aclosing
from typing import Any

import msgspec
import pytest
import structlog
from msgspec import structs
from support.servers.nats_servers import NatsServer, settings_for

from ledger.core import snapshot_format
from ledger.log.jetstream import jetstream_api
from ledger.log.jetstream.jetstream_log import JetStreamLog
from ledger.log.jetstream.snapshot_store import (
    CHUNK_BYTES,
    LISTINGS_MAX,
    Manifest,
    PieceCollector,
    SnapshotStore,
)
from ledger.log.log_port import Snapshot

NEWER = snapshot_format.SCHEMA + 1

pytestmark = pytest.mark.integration


async def test_an_unfinished_snapshot_is_none(jetstream_log: JetStreamLog) -> None:
    await jetstream_log.save_snapshot(Snapshot(1, b"whole"))
    chunk = jetstream_log.names.chunk_subject
    manifest = jetstream_log.names.manifest_subject
    await jetstream_log.connection.request(chunk, b"half of something")
    await jetstream_log.connection.request(manifest, b"not a manifest")
    assert [snapshot.position async for snapshot in jetstream_log.load_snapshots()] == [1]


async def test_a_snapshot_with_a_piece_missing_is_none(
    jetstream_log: JetStreamLog, shard: str
) -> None:
    await jetstream_log.save_snapshot(Snapshot(1, b"older"))
    await jetstream_log.save_snapshot(Snapshot(2, b"newer" * 200_000))
    await jetstream_log.connection.api(f"STREAM.MSG.DELETE.LEDGER-{shard}-SNAP", {"seq": 3})
    assert [snapshot.position async for snapshot in jetstream_log.load_snapshots()] == [1]


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
    assert [snapshot.position async for snapshot in other.load_snapshots()] == [8, 7]
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
    assert [snapshot.payload async for snapshot in other.load_snapshots()] == [b"slow", b"quick"]
    await other.close()


async def test_old_snapshots_take_no_room(jetstream_log: JetStreamLog, shard: str) -> None:
    for position in range(1, 6):
        await jetstream_log.save_snapshot(Snapshot(position, b"state"))
    answer = json.loads(await jetstream_log.connection.api(f"STREAM.INFO.LEDGER-{shard}-SNAP"))
    assert answer["state"]["messages"] == 4


async def store_older(log: JetStreamLog, position: int, payload: bytes) -> None:
    """Store a snapshot as versions that write schema 3 do."""
    chunk, manifest = log.names.chunk_subject, log.names.manifest_subject
    ack = json.loads(await log.connection.request(chunk, msgspec.msgpack.encode(("u", 0, payload))))
    sha256 = hashlib.sha256(payload).digest()
    sealed = msgspec.msgpack.encode(("u", position, 1, ack["seq"], sha256))
    await log.connection.request(manifest, sealed)


async def test_a_snapshot_of_schema_3_is_read_until_two_newer_ones_exist(
    jetstream_log: JetStreamLog,
) -> None:
    await store_older(jetstream_log, 5, b"older")
    assert [kept async for kept in jetstream_log.load_snapshots()] == [Snapshot(5, b"older")]
    for position in (6, 7):
        await jetstream_log.save_snapshot(Snapshot(position, b"newer"))
    assert [kept.position async for kept in jetstream_log.load_snapshots()] == [7, 6]


async def test_a_snapshot_of_a_newer_schema_is_passed_over(jetstream_log: JetStreamLog) -> None:
    await jetstream_log.save_snapshot(Snapshot(1, b"ours"))
    sealed = msgspec.msgpack.encode((NEWER, "u", 9, 1, 1, hashlib.sha256(b"").digest()))
    await jetstream_log.connection.request(jetstream_log.names.manifest_subject, sealed)
    with structlog.testing.capture_logs() as logs:
        assert [kept.position async for kept in jetstream_log.load_snapshots()] == [1]
    assert [
        (entry["position"], entry["schema"])
        for entry in logs
        if entry["event"] == "snapshot_of_other_schema"
    ] == [(9, NEWER)]


@pytest.mark.parametrize("consumers", [True, False])
async def test_a_snapshot_is_read_with_and_without_consumers(
    nats_server: NatsServer,
    jetstream_log: JetStreamLog,
    shard: str,
    monkeypatch: pytest.MonkeyPatch,
    consumers: bool,
) -> None:
    requested, request = list[range](), SnapshotStore._request_pieces

    async def noted(self: SnapshotStore, collector: PieceCollector, sequences: range) -> None:
        requested.append(sequences)
        await request(self, collector, sequences)

    monkeypatch.setattr(SnapshotStore, "_request_pieces", noted)
    payload = random.Random(7).randbytes(6 * CHUNK_BYTES + 1)
    await jetstream_log.save_snapshot(Snapshot(1, payload))
    settings = structs.replace(settings_for(nats_server, shard), consumers=consumers)
    reader = await JetStreamLog.connect(settings)
    try:
        assert [kept async for kept in reader.load_snapshots()] == [Snapshot(1, payload)]
    finally:
        await reader.close()
    assert [*map(len, requested)] == ([] if consumers else [7])


async def test_the_older_snapshot_is_not_fetched_while_the_newest_is_usable(
    jetstream_log: JetStreamLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    for position in (1, 2):
        await jetstream_log.save_snapshot(Snapshot(position, b"state"))
    fetched = list[int]()
    load = jetstream_log._snapshots._load

    async def noted(wanted: Manifest, sequence: int) -> Snapshot | None:
        fetched.append(wanted.position)
        return await load(wanted, sequence)

    monkeypatch.setattr(jetstream_log._snapshots, "_load", noted)
    async with aclosing(jetstream_log.load_snapshots()) as stored:
        assert (await anext(stored)).position == 2
    assert fetched == [2]


async def test_a_snapshot_is_loaded_though_newer_ones_replace_all_meanwhile(
    jetstream_log: JetStreamLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each replica saves, so two are soon saved while a large one is fetched."""
    for position in (1, 2):
        await jetstream_log.save_snapshot(Snapshot(position, b"state"))
    load, replacing = jetstream_log._snapshots._load, [3, 4]

    async def overtaken(wanted: Manifest, sequence: int) -> Snapshot | None:
        while replacing:
            await jetstream_log.save_snapshot(Snapshot(replacing.pop(0), b"newer"))
        return await load(wanted, sequence)

    monkeypatch.setattr(jetstream_log._snapshots, "_load", overtaken)
    assert [kept.position async for kept in jetstream_log.load_snapshots()] == [4, 3]


async def test_a_load_of_broken_snapshots_ends(
    jetstream_log: JetStreamLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    fetched = list[int]()

    async def broken(wanted: Manifest, sequence: int) -> None:
        await jetstream_log.save_snapshot(Snapshot(wanted.position + 1, b"newer"))
        fetched.append(wanted.position)

    await jetstream_log.save_snapshot(Snapshot(1, b"state"))
    monkeypatch.setattr(jetstream_log._snapshots, "_load", broken)
    assert [kept async for kept in jetstream_log.load_snapshots()] == []
    assert fetched == list(range(1, LISTINGS_MAX + 1))


async def test_pieces_are_requested_one_at_a_time_without_consumers(
    nats_server: NatsServer,
    jetstream_log: JetStreamLog,
    shard: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A slow link takes a piece a second; the answers to four requests, repeated, fill it."""
    payload = random.Random(7).randbytes(6 * CHUNK_BYTES)
    await jetstream_log.save_snapshot(Snapshot(1, payload))
    under_way, most, message = 0, 0, jetstream_api.message

    async def counted(*wanted: Any) -> Any:
        nonlocal under_way, most
        under_way += 1
        most = max(most, under_way)
        try:
            return await message(*wanted)
        finally:
            under_way -= 1

    monkeypatch.setattr(jetstream_api, "message", counted)
    settings = structs.replace(settings_for(nats_server, shard), consumers=False)
    reader = await JetStreamLog.connect(settings)
    try:
        assert [kept async for kept in reader.load_snapshots()] == [Snapshot(1, payload)]
    finally:
        await reader.close()
    assert most == 1
