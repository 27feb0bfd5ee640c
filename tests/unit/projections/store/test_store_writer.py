"""The projection file: whose it is, which schema it has, and what readers see of it."""

import os
import sqlite3
from pathlib import Path

import pytest
from support.harness.projection_harness import digest_of, log_of, project, random_payloads

from projections.projector import projector
from projections.store.readers import Readers
from projections.store.store_writer import VERSION, Store, StoreError, delete

PAGE_BYTES = 4_096


async def test_a_new_file_is_empty(tmp_path: Path) -> None:
    async with await Store.open(tmp_path / "deep" / "ledger.sqlite") as store:
        assert (await store.head()).position == 0


async def test_a_file_of_another_schema_is_built_again(tmp_path: Path) -> None:
    path, log = tmp_path / "ledger.sqlite", log_of(random_payloads(1, 60))
    await project(path, log)
    before = await digest_of(path)
    with sqlite3.connect(path) as connection:
        connection.execute(f"PRAGMA user_version = {VERSION + 1}")
    connection.close()
    async with await Store.open(path) as store:
        assert (await store.head()).position == 0
    await project(path, log)
    assert await digest_of(path) == before


async def test_foreign_database_is_refused_and_unchanged(tmp_path: Path) -> None:
    path = tmp_path / "other.sqlite"
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE precious (x)")
        connection.execute("INSERT INTO precious VALUES (1)")
    connection.close()
    with pytest.raises(StoreError, match=r"other\.sqlite is not a projection.*move it away"):
        async with await Store.open(path):
            pass
    connection = sqlite3.connect(path)
    assert connection.execute("SELECT x FROM precious").fetchall() == [(1,)]
    connection.close()


async def test_file_without_a_database_is_named_with_a_remedy(tmp_path: Path) -> None:
    path = tmp_path / "ledger.sqlite"
    path.write_bytes(b"not a database at all" * 100)
    with pytest.raises(StoreError, match=r"ledger\.sqlite.*delete the file"):
        await Store.open(path)


async def test_a_file_that_is_damaged_further_in_is_named_with_a_remedy(tmp_path: Path) -> None:
    path = tmp_path / "ledger.sqlite"
    await project(path, log_of(random_payloads(1, 60)))
    with sqlite3.connect(path) as connection:
        statement = "SELECT rootpage FROM sqlite_master WHERE name = 'records'"
        (page,) = connection.execute(statement).fetchone()
    connection.close()
    with path.open("r+b") as file:
        file.seek((page - 1) * PAGE_BYTES)
        file.write(b"\xa5" * PAGE_BYTES)
    with pytest.raises(StoreError, match=r"ledger\.sqlite.*projection rebuild"):
        await digest_of(path)
    async with await Store.open(path) as store:
        with pytest.raises(StoreError, match=r"ledger\.sqlite.*delete the file"):
            await store.write(lambda connection: connection.execute("DELETE FROM records"))


async def test_reading_without_a_projection_has_a_remedy(tmp_path: Path) -> None:
    async with Readers(tmp_path / "ledger.sqlite") as readers:
        with pytest.raises(StoreError, match=r"no projection at .*gpuledger serve"):
            async with readers.view():
                pass


async def test_readers_cannot_write(tmp_path: Path) -> None:
    path = tmp_path / "ledger.sqlite"
    await project(path, log_of(random_payloads(1, 60)))
    async with Readers(path) as readers:
        with pytest.raises(StoreError, match="readonly"):
            async with readers.view() as view:
                await view.connection.execute("DELETE FROM records")


async def test_a_view_stays_at_its_position_while_the_projection_goes_on(tmp_path: Path) -> None:
    path, log = tmp_path / "ledger.sqlite", log_of(random_payloads(1, 60))
    await project(path, log, 5)
    async with Readers(path) as readers:
        async with readers.view() as view:
            await project(path, log, 9)
            async with view.connection.execute("SELECT max(position) FROM records") as rows:
                assert await rows.fetchone() == (5,)
            assert view.head.position == 5
        async with readers.view() as view:
            assert view.head.position == 9


async def test_readers_go_over_to_a_file_that_was_built_again(tmp_path: Path) -> None:
    path, log = tmp_path / "ledger.sqlite", log_of(random_payloads(1, 60))
    await project(path, log, 9)
    async with Readers(path) as readers:
        async with readers.view() as view:
            assert view.head.position == 9
        delete(path)
        await project(path, log, 3)
        async with readers.view() as view:
            assert view.head.position == 3


async def test_a_view_that_takes_too_long_ends_and_leaves_room_for_the_next(
    tmp_path: Path,
) -> None:
    path = tmp_path / "ledger.sqlite"
    await project(path, log_of(random_payloads(1, 60)))
    async with Readers(path, seconds=0.2) as readers:
        endless = (
            "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) SELECT max(x) FROM n"
        )
        for _ in range(6):
            with pytest.raises(TimeoutError):
                async with readers.view() as view:
                    await view.connection.execute(endless)
        async with readers.view() as view:
            assert view.head.position > 0


async def test_a_write_that_fails_stores_nothing(tmp_path: Path) -> None:
    def fails(connection: sqlite3.Connection) -> None:
        connection.execute(_DENIAL)
        raise ValueError("in the middle")

    def counted(connection: sqlite3.Connection) -> int:
        return int(connection.execute("SELECT count(*) FROM denials").fetchone()[0])

    async with await Store.open(tmp_path / "ledger.sqlite") as store:
        with pytest.raises(ValueError, match="in the middle"):
            await store.write(fails)
        assert await store.write(counted) == 0
        await store.write(lambda connection: connection.execute(_DENIAL))
        assert await store.write(counted) == 1


async def test_a_scratch_file_is_complete_once_closed_and_continues(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log, built, other = log_of(random_payloads(1, 60)), tmp_path / "built", tmp_path / "other"
    synced: list[int] = []
    monkeypatch.setattr(os, "fsync", lambda file: synced.append(os.fstat(file).st_ino))
    async with await Store.open(built, scratch=True) as store:
        await projector.replay(log, store, 9)
    assert synced == [built.stat().st_ino]
    assert _names(tmp_path) == ["built"], "a scratch file has no journal"
    await project(other, log)
    assert await digest_of(built) == await digest_of(other, 9)
    await project(built, log)
    assert await digest_of(built) == await digest_of(other)


_DENIAL = """
INSERT INTO denials (position, time, cluster, namespace, body) VALUES (1, 1, 'c1', 'red', x'80')
"""


def _names(folder: Path) -> list[str]:
    return sorted(file.name for file in folder.iterdir())
