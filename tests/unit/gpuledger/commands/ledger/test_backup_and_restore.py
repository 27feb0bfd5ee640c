"""Archives: what goes in comes out, and any damage is found before it is believed."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from gpuledger.cli.exit_codes import Exit
from gpuledger.command_line import build
from gpuledger.storage import archive_file
from gpuledger.storage.archive_file import ArchiveHeader, ArchiveWriter, BadArchive
from ledger.log.records import RECORD_BYTES_MAX

RECORDS = [b"one", b"two" * 100, b"\x00" * 5]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    archive = tmp_path / "ledger.backup"
    write(archive, RECORDS)
    return archive


def write(path: Path, records: list[bytes]) -> None:
    with ArchiveWriter(path, ArchiveHeader("main", len(records))) as writer:
        for record in records:
            writer.add(record)
        writer.finish()


def test_records_come_back_as_they_were(path: Path) -> None:
    header, *records = archive_file.read(path)
    assert archive_file.header_of(header, path) == ArchiveHeader("main", 3)
    assert records == RECORDS
    assert path.stat().st_mode & 0o077 == 0, "a backup is readable by its owner only"


def test_an_existing_file_is_not_overwritten(path: Path) -> None:
    with pytest.raises(FileExistsError, match="exists already"):
        write(path, [])
    assert list(archive_file.read(path))[1:] == RECORDS


def test_a_backup_that_was_not_finished_leaves_nothing(tmp_path: Path) -> None:
    with ArchiveWriter(tmp_path / "half", ArchiveHeader("main", 9)) as writer:
        writer.add(b"one")
    assert list(tmp_path.iterdir()) == []


@given(place=st.integers(min_value=0, max_value=420), bit=st.integers(min_value=0, max_value=7))
def test_a_changed_bit_is_found_wherever_it_is(
    tmp_path_factory: pytest.TempPathFactory, place: int, bit: int
) -> None:
    path = tmp_path_factory.mktemp("archive") / "ledger.backup"
    write(path, RECORDS)
    content = bytearray(path.read_bytes())
    content[place % len(content)] ^= 1 << bit
    path.write_bytes(content)
    with pytest.raises(BadArchive, match=r"ledger\.backup"):
        list(archive_file.read(path))


@given(kept=st.integers(min_value=0, max_value=420))
def test_a_cut_is_found_wherever_it_is(tmp_path_factory: pytest.TempPathFactory, kept: int) -> None:
    path = tmp_path_factory.mktemp("archive") / "ledger.backup"
    write(path, RECORDS)
    content = path.read_bytes()
    path.write_bytes(content[: kept % len(content)])
    with pytest.raises(BadArchive):
        list(archive_file.read(path))


def test_what_follows_the_end_is_not_ignored(path: Path) -> None:
    path.write_bytes(path.read_bytes() + b"\x00")
    with pytest.raises(BadArchive):
        list(archive_file.read(path))


def test_an_absurd_length_is_not_read_into_memory(path: Path) -> None:
    too_long = (RECORD_BYTES_MAX + 1).to_bytes(4, "big")
    path.write_bytes(archive_file.MAGIC + too_long + b"x" * (RECORD_BYTES_MAX + 1))
    with pytest.raises(BadArchive, match=f"damaged at byte {len(archive_file.MAGIC) + 4}$"):
        list(archive_file.read(path))


def test_a_damaged_backup_restores_nothing(path: Path, tmp_path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])
    store = tmp_path / "store"
    result = CliRunner().invoke(build(), ["restore", str(path), f"--store-dir={store}"])
    assert result.exit_code == Exit.FAILED
    assert "nothing was restored" in result.stderr
    assert not store.exists()


def test_archive_without_a_log_restores_nothing(path: Path, tmp_path: Path) -> None:
    store = tmp_path / "store"
    result = CliRunner().invoke(build(), ["restore", str(path), f"--store-dir={store}"])
    assert result.exit_code == Exit.FAILED
    assert "position 1" in result.stderr
    assert not store.exists()


def test_a_store_that_holds_anything_is_not_restored_to(tmp_path: Path) -> None:
    archived, used = tmp_path / "empty.backup", tmp_path / "used"
    write(archived, [])
    used.mkdir()
    (used / "other").touch()
    result = CliRunner().invoke(build(), ["restore", str(archived), f"--store-dir={used}"])
    assert result.exit_code == Exit.USAGE
    assert [file.name for file in used.iterdir()] == ["other"]
