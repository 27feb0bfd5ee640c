"""The digest notices every changed cell of what follows from the log."""

import sqlite3
from pathlib import Path

import pytest
from support.projecting import digest_of, log_of, project, random_payloads

from projections.digest import _TABLES

COLUMNS = [
    ("records", "time"),
    ("records", "hash"),
    ("records", "writer"),
    ("events", "body"),
    ("events", "namespace"),
    ("namespaces", "name"),
    ("accounts", "name"),
    ("clusters", "uid"),
    ("lines", "key"),
    ("lines", "closed"),
    ("coverages", "opened"),
    ("balances", "body"),
    ("charges", "demand"),
    ("charges", "key"),
    ("charges", "closed"),
    ("charges", "cause"),
    ("charges", "since"),
    ("charges", "root"),
    ("charges", "traits"),
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
            f" WHEN 'text' THEN {column} || 'x'"
            f" ELSE CAST({column} || x'00' AS BLOB) END WHERE {column} ="
            f" (SELECT max({column}) FROM {table})"
        ).rowcount
    connection.close()
    assert changed
    assert await digest_of(path, before.position) != before


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
