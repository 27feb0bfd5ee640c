"""The projection and the audit on the real log."""

import asyncio
from pathlib import Path

import pytest
from support.harness.projection_harness import digest_of, log_of, project, random_payloads

from ledger.core import snapshot_format
from ledger.core.model.state import State
from ledger.log import records
from ledger.log.jetstream.jetstream_log import JetStreamLog
from ledger.log.log_port import Snapshot
from projections.log_audit import audit_lines
from projections.log_verification import ExpectedHead, verify
from projections.projector import projector
from projections.store.store_writer import Store

pytestmark = pytest.mark.integration

PAYLOADS = random_payloads(21, 200)


async def follow_to(log: JetStreamLog, path: Path, position: int) -> None:
    """Run the projector until it has come to a position, and cancel it."""
    async with await Store.open(path) as store:
        await _follow_to(log, store, position)


async def _follow_to(log: JetStreamLog, store: Store, position: int) -> None:
    arrived = asyncio.Event()

    def note(now: int, _: int) -> None:
        if now >= position:
            arrived.set()

    task = asyncio.create_task(projector.run(log, store, on_progress=note))
    async with asyncio.timeout(30):
        await arrived.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_live_and_continued_and_rebuilt_projections_agree(
    jetstream_log: JetStreamLog, tmp_path: Path
) -> None:
    live, rebuilt = tmp_path / "live.sqlite", tmp_path / "rebuilt.sqlite"
    half, state = len(PAYLOADS) // 2, State()
    for position, payload in enumerate(PAYLOADS[:half]):
        await jetstream_log.append(payload, position)
        records.fold(state, position + 1, payload)
    await follow_to(jetstream_log, live, half)
    await jetstream_log.save_snapshot(Snapshot(half, snapshot_format.encode(state)))
    for position, payload in enumerate(PAYLOADS[half:], half):
        await jetstream_log.append(payload, position)
    await follow_to(jetstream_log, live, len(PAYLOADS))
    await project(rebuilt, log_of(PAYLOADS))
    for position in (1, half, len(PAYLOADS)):
        assert await digest_of(live, position) == await digest_of(rebuilt, position)


async def test_the_real_log_is_verified_and_printed(jetstream_log: JetStreamLog) -> None:
    for position, payload in enumerate(PAYLOADS):
        await jetstream_log.append(payload, position)
    _, digest = records.decode(PAYLOADS[-1])
    report = await verify(jetstream_log, ExpectedHead(len(PAYLOADS), digest.hex()))
    assert (report.ok, report.records) == (True, len(PAYLOADS))
    told = [line async for line in audit_lines(jetstream_log)]
    assert told == [line async for line in audit_lines(log_of(PAYLOADS))]
