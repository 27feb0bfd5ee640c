"""The digest notices every changed cell of what follows from the log."""

import asyncio
import sqlite3
import time
from collections.abc import Iterable
from pathlib import Path

import aiosqlite
import pytest
from support.harness.projection_harness import digest_of, log_of, project, random_payloads

from projections.store.digest import _TABLES, digest
from projections.store.readers import Readers
from projections.store.store_writer import StoreError

COLUMNS = [
    ("records", "time"),
    ("records", "hash"),
    ("records", "writer"),
    ("events", "namespace"),
    ("events", "numbers"),
    ("interned", "body"),
    ("namespaces", "name"),
    ("accounts", "name"),
    ("clusters", "uid"),
    ("lines", "key"),
    ("lines", "closed"),
    ("coverages", "opened"),
    ("limits", "body"),
    ("balances", "body"),
    ("charges", "demand"),
    ("charges", "key"),
    ("charges", "since"),
    ("charges", "root"),
    ("charges", "traits"),
    ("charges", "read"),
    ("charges_open", "key"),
    ("charges_open", "number"),
    ("charges_closed", "closed"),
    ("charges_closed", "cause"),
    ("charges_closed", "number"),
    ("draws", "charge"),
    ("draws", "committed"),
    ("draws", "pods"),
    ("draws", "live"),
    ("draws", "closed"),
    ("selections", "reach"),
    ("selections", "selects"),
    ("selections", "closed"),
    ("drift", "cause"),
    ("drift", "amounts"),
    ("drift", "over"),
]


@pytest.fixture
async def path(tmp_path: Path) -> Path:
    path = tmp_path / "ledger.sqlite"
    await project(path, log_of(random_payloads(5, 200)))
    return path


@pytest.mark.parametrize(("table", "column"), COLUMNS)
async def test_a_flipped_cell_changes_the_digest(path: Path, table: str, column: str) -> None:
    before = await digest_of(path)
    with sqlite3.connect(path) as connection:
        connection.create_function("fork", 2, lambda *_: 0)
        changed = connection.execute(
            f"UPDATE {table} SET {column} = CASE typeof({column})"
            f" WHEN 'integer' THEN {column} + 1000"
            f" WHEN 'text' THEN {column} || 'x' WHEN 'null' THEN 7"
            f" ELSE CAST({column} || x'00' AS BLOB) END WHERE {column} IS"
            f" (SELECT max({column}) FROM {table})"
        ).rowcount
    connection.close()
    assert changed
    assert await digest_of(path, before.position) != before


async def test_events_of_another_record_change_the_digest(path: Path) -> None:
    before = await digest_of(path)
    with sqlite3.connect(path) as connection:
        connection.execute(
            "UPDATE records SET body = (SELECT body FROM records WHERE position = 3)"
            " WHERE position = 4"
        )
    connection.close()
    assert await digest_of(path) != before


async def test_damaged_events_of_a_record_are_named_with_a_remedy(path: Path) -> None:
    for damage in ("substr(body, 1, length(body) - 1)", "x''", "x'0300' || x'00'"):
        with sqlite3.connect(path) as connection:
            connection.execute(f"UPDATE records SET body = CAST({damage} AS BLOB)")
        connection.close()
        with pytest.raises(StoreError, match=r"ledger\.sqlite.*projection rebuild"):
            await digest_of(path)


async def test_a_missing_row_changes_the_digest(path: Path) -> None:
    before = await digest_of(path)
    for table in _TABLES:
        with sqlite3.connect(path) as connection:
            if connection.execute(f"DELETE FROM {table}").rowcount == 0:
                continue
        connection.close()
        now = await digest_of(path, before.position)
        assert now != before
        before = now


async def test_what_happened_later_does_not_count(path: Path, tmp_path: Path) -> None:
    payloads = random_payloads(5, 200)
    early = tmp_path / "early.sqlite"
    await project(early, log_of(payloads), 20)
    assert await digest_of(early) == await digest_of(path, 20)
    assert (await digest_of(path, 20)).digest != (await digest_of(path, 21)).digest


async def test_a_digest_takes_longer_than_a_view_may_while_rows_come(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "projection.sqlite"
    await project(path, log_of(random_payloads(3, 50)))
    whole = await digest_of(path)
    fetch = aiosqlite.Cursor.fetchmany

    async def slow(cursor: aiosqlite.Cursor, _size: int) -> Iterable[sqlite3.Row]:
        await asyncio.sleep(0.03)
        return await fetch(cursor, 1)

    monkeypatch.setattr(aiosqlite.Cursor, "fetchmany", slow)
    began = time.monotonic()
    async with Readers(path, seconds=2.0) as readers, readers.view() as view:
        assert await digest(view, view.head.position) == whole
    assert time.monotonic() - began > 2.0, "the view had enough time anyway"


async def test_a_digest_without_rows_ends_with_the_time_of_its_view(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "projection.sqlite"
    await project(path, log_of(random_payloads(3, 12)))

    async def never(_cursor: aiosqlite.Cursor, _size: int) -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr(aiosqlite.Cursor, "fetchmany", never)
    async with Readers(path, seconds=0.2) as readers:
        with pytest.raises(TimeoutError):
            async with readers.view() as view:
                await digest(view, view.head.position)
