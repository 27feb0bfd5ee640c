"""The projector: what it refuses, where it goes on, and what it does with denials."""

import asyncio
import sqlite3
from collections.abc import Sequence
from pathlib import Path

import pytest
from support.builders.decide_and_fold import record
from support.generators.placement_records import placement_payloads
from support.harness.projection_harness import (
    START,
    digest_of,
    log_of,
    project,
    random_payloads,
    viewing,
)

from ledger.core import snapshot_format
from ledger.core.model import accounts, commands
from ledger.core.model.denials import Denial, Reason
from ledger.core.model.state import State
from ledger.log import memory_log, records
from ledger.log.log_port import Lost, Snapshot
from ledger.log.memory_log import MemoryLog, MemoryStore
from ledger.log.writer import denial_log
from projections.projector import denial_projector, projector
from projections.queries.denial_history import denials
from projections.queries.query_scope import EVERYTHING, QueryScope
from projections.queries.totals import denial_counts as counting
from projections.queries.totals.denial_counts import DenialCounts, denial_counts
from projections.store.store_writer import Store
from projections.tables.balance_table import BalanceTable
from projections.tables.table_protocol import DamagedProjection


async def test_a_log_that_lost_its_tail_stops_the_projector(tmp_path: Path) -> None:
    path, payloads = tmp_path / "ledger.sqlite", random_payloads(2, 90)
    await project(path, log_of(payloads))
    with pytest.raises(Lost, match=rf"ends at position {len(payloads) - 3}.*{path.name}.*missing"):
        await project(path, log_of(payloads[:-3]), 1)


async def test_another_log_stops_the_projector(tmp_path: Path) -> None:
    path = tmp_path / "ledger.sqlite"
    await project(path, log_of(random_payloads(2, 90)), 10)
    with pytest.raises(Lost, match="position 10 of the log is not the record"):
        await project(path, log_of(random_payloads(3, 90)))


async def test_a_changed_record_stops_the_projector_and_is_not_stored(tmp_path: Path) -> None:
    path, payloads = tmp_path / "ledger.sqlite", random_payloads(2, 90)
    payloads[6] = payloads[6][:-1] + bytes((payloads[6][-1] ^ 1,))
    with pytest.raises(Lost, match="position 7"):
        await project(path, log_of(payloads))
    await project(path, log_of(payloads), 6)


@pytest.mark.parametrize(
    ("table", "rows"),
    [
        ("charges_open", "TRUE"),
        ("draws", "closed IS NULL"),
        ("placements", "closed IS NULL"),
        ("cards", "closed IS NULL"),
    ],
)
async def test_a_row_that_vanished_is_noticed_when_the_log_closes_it(
    tmp_path: Path, table: str, rows: str
) -> None:
    path, payloads = tmp_path / "ledger.sqlite", placement_payloads(3, 300)
    await project(path, log_of(payloads), len(payloads) // 2)
    with sqlite3.connect(path) as connection:
        connection.create_function("fork", 2, lambda *_: 0)
        gone = connection.execute(f"DELETE FROM {table} WHERE {rows}").rowcount
    connection.close()
    assert gone
    with pytest.raises(DamagedProjection, match=f"table {table} .*delete the file"):
        await project(path, log_of(payloads))


async def test_many_rows_close_in_one_transaction(tmp_path: Path) -> None:
    state, payloads = State(), list[bytes]()
    pods = [commands.Reserve("c1/red", f"pods/{n}", f"u{n}", {"cpu": 1}) for n in range(700)]
    ends = [commands.Refute(pod.namespace, pod.key, pod.uid, pod.base) for pod in pods]
    groups: list[Sequence[commands.AnyCommand]] = [pods[:400], pods[400:], ends]
    for number, group in enumerate(groups):
        payload = record(state, group, time=START + number)
        assert payload is not None
        payloads.append(payload)
    pieces, whole = tmp_path / "pieces.sqlite", tmp_path / "whole.sqlite"
    for position in (1, 2, 3):
        await project(pieces, log_of(payloads), position)
    await project(whole, log_of(payloads), scratch=True)
    assert await digest_of(pieces) == await digest_of(whole)
    async with viewing(pieces) as view:
        assert await view.connection.execute_fetchall("SELECT * FROM charges_open") == []


async def test_closed_accounts_stay_in_no_memory(tmp_path: Path) -> None:
    state, payloads = State(), list[bytes]()
    for number in range(20):
        name = accounts.quota("c1", "red", f"q{number}")
        opened = commands.SetLimits(name, ("c1/red",), {"cpu": 1})
        for command in (opened, commands.CloseAccount(name)):
            payload = record(state, [command], time=START + number)
            assert payload is not None
            payloads.append(payload)
    log = log_of(payloads)
    async with await Store.open(tmp_path / "ledger.sqlite") as store:
        projecting = await projector.Projector.resume(log, store)
        async for batch in log.read(1, len(payloads)):
            await projecting.project(batch, known=len(payloads))
        (balances,) = (t for t in projecting._tables if isinstance(t, BalanceTable))
        assert balances._columns == {}


async def test_snapshots_newer_than_the_file_are_left_for_later(tmp_path: Path) -> None:
    path, payloads, state = tmp_path / "ledger.sqlite", random_payloads(2, 90), State()
    log = log_of(payloads)
    await project(path, log, 5)
    for position, payload in enumerate(payloads[:12], 1):
        records.fold(state, position, payload)
    await log.save_snapshot(Snapshot(12, snapshot_format.encode(state)))
    await project(path, log)
    assert (await digest_of(path)).position == len(payloads)


async def test_following_is_as_good_as_replaying(tmp_path: Path) -> None:
    payloads = random_payloads(4, 120)
    store = MemoryStore(exists=True)
    store.records = payloads[:10]
    log = MemoryLog(store)
    async with await Store.open(tmp_path / "live.sqlite") as live:
        await _follow_along(log, live, store, payloads[10:])
    await project(tmp_path / "rebuilt.sqlite", log_of(payloads))
    assert await digest_of(tmp_path / "live.sqlite") == await digest_of(tmp_path / "rebuilt.sqlite")


async def test_a_subscriber_sees_each_record_after_its_fold(tmp_path: Path) -> None:
    payloads, seen = random_payloads(4, 30), list[tuple[int, int]]()
    log = log_of(payloads)
    async with await Store.open(tmp_path / "ledger.sqlite") as store:
        follower = await projector.Projector.resume(log, store)
        follower.subscribe(lambda record: seen.append((record.position, follower.state.position)))
        await follower.project([entry async for batch in log.read(1, 5) for entry in batch])
    assert seen == [(position, position) for position in range(1, 6)]


async def _follow_along(
    log: MemoryLog, live: Store, store: MemoryStore, payloads: list[bytes]
) -> None:
    """Run the projector and append records one by one, each when the one before is projected."""
    arrived = asyncio.Queue[tuple[int, int]]()
    task = asyncio.create_task(
        projector.run(log, live, on_progress=lambda *now: arrived.put_nowait(now))
    )
    async with asyncio.timeout(20):
        assert await arrived.get() == (10, 10)
        for payload in payloads:
            store.store(payload, len(store.records))
            assert await arrived.get() == (len(store.records), len(store.records))
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_denials_are_newest_first_and_not_in_the_digest(tmp_path: Path) -> None:
    path, payloads = tmp_path / "ledger.sqlite", random_payloads(4, 30)
    log = log_of(payloads)
    await project(path, log)
    before = await digest_of(path)
    for number, namespace in enumerate(("c1/red", "c1/blue", "c1/red")):
        await log.publish_denial(_refusal(number, namespace))
    await log.publish_denial(b"not a denial")
    await _follow_until(path, log, 3)
    async with viewing(path) as view:
        everything, more = await denials(view, EVERYTHING, limit=2)
        assert [denial.uid for denial in everything] == ["u2", "u1"]
        rest, end = await denials(view, EVERYTHING, limit=2, before=more)
        assert ([denial.uid for denial in rest], end) == (["u0"], 0)
        red, _ = await denials(view, QueryScope("red", "c1"), limit=9)
        assert [denial.uid for denial in red] == ["u2", "u0"]
        assert red[0].message == "full. [QuotaExceeded]"
        assert (await denials(view, QueryScope("red", "c2"), limit=9)) == ([], 0)
        recent, _ = await denials(view, EVERYTHING, limit=9, since=1)
        assert [denial.uid for denial in recent] == ["u2", "u1"]
    assert await digest_of(path) == before


async def test_denials_are_counted_by_scope_and_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, log = tmp_path / "ledger.sqlite", log_of([])
    for number, namespace in enumerate(("c1/red", "c1/blue", "c1/red")):
        await log.publish_denial(_refusal(number, namespace))
    await _follow_until(path, log, 3)
    async with viewing(path) as view:

        async def count(namespace: str, cluster: str, until: int) -> int:
            scope = QueryScope(namespace, cluster)
            return (await denial_counts(view, scope, since=0, until=until)).total

        assert [await count("", cluster, 9) for cluster in ("", "c1", "c2")] == [3, 3, 0]
        assert [await count("red", "c1", until) for until in (0, 1, 2)] == [1, 1, 2]
        assert await count("red", "c2", 9) == 0
        monkeypatch.setattr(counting, "COUNTED_MAX", 2)
        counted = await denial_counts(view, EVERYTHING, since=0, until=9)
        assert counted == DenialCounts([("QuotaExceeded", 2)], 2, is_complete=False)


async def test_denials_are_removed_when_they_are_too_old(tmp_path: Path) -> None:
    path, log, day = tmp_path / "ledger.sqlite", log_of(random_payloads(2, 30)), 86_400 * 1_000_000
    await project(path, log)
    for number in (1, 29 * day, 31 * day, 59 * day):
        await log.publish_denial(_refusal(number, "c1/red"))
    await _follow_until(path, log, 4)
    async with await Store.open(path) as store:
        expiring = asyncio.create_task(
            denial_projector.expire(store, 30, now=lambda: 60 * 86_400.0)
        )
        async with asyncio.timeout(20):
            while len(kept := await _kept(path)) > 2:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        expiring.cancel()
    assert kept == [59 * day, 31 * day]


async def _kept(path: Path) -> list[int]:
    async with viewing(path) as view:
        rows = await view.connection.execute_fetchall(
            "SELECT time FROM denials ORDER BY position DESC"
        )
    return [row[0] for row in rows]


def _refusal(number: int, namespace: str) -> bytes:
    denial = Denial(Reason.QUOTA_EXCEEDED, "full", transient=True)
    refusal = denial_log.LoggedDenial(
        number, 1, namespace, "pods/a", f"u{number}", "alice", {}, denial
    )
    return denial_log.encode(refusal)


async def test_projector_behind_the_log_stores_several_batches_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory_log, "BATCH_ENTRIES_MAX", 5)
    log = log_of(random_payloads(1, 60))
    last = (await log.extent()).last
    positions = []
    async with await Store.open(tmp_path / "ledger.sqlite") as store:
        behind = await projector.Projector.resume(log, store)
        async for batch in log.read(1, last):
            await behind.project(batch, known=last)
            positions.append((behind.position, (await store.head()).position))
    assert len(positions) > 2
    assert positions == [(0, 0)] * (len(positions) - 1) + [(last, last)]


async def _follow_until(path: Path, log: MemoryLog, count: int) -> None:
    """Run the projector until the table has so many denials."""
    async with await Store.open(path) as store, asyncio.timeout(20):
        task = asyncio.create_task(projector.run(log, store))
        enough = False
        while not enough:
            enough = await _count(store) == count
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task


async def _count(store: Store) -> int:
    def count(connection: sqlite3.Connection) -> int:
        return int(connection.execute("SELECT count(*) FROM denials").fetchone()[0])

    return await store.write(count)
