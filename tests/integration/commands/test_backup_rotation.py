"""`gpuledger backup --keep N DIR` on a real embedded log: the files that it keeps and deletes."""

import os
import shutil
import time
from pathlib import Path

import pytest
from support.harness.command_line import gpuledger

from gpuledger.storage import archive_file, backup_rotation
from gpuledger.storage.archive_file import ArchiveHeader, ArchiveWriter
from ledger.log.log_port import Log, Unreachable
from ledger.runtime.settings.settings import Settings

pytestmark = pytest.mark.integration

CARDS = "requests.nvidia.com/gpu=2"
OLDER = [f"main-2026010{day}T031700Z.backup" for day in (1, 2, 3)]


@pytest.fixture(scope="module")
def grown(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a ledger of four records in `store`, and a backup of each earlier length."""
    folder = tmp_path_factory.mktemp("ledger")
    for count, name in enumerate((*OLDER, "last"), start=1):
        made = gpuledger("quota", "set", "-n", "team", f"q{count}", CARDS, store=folder / "store")
        assert made.status == 0
        if name != "last":
            saved = gpuledger("backup", str(folder / name), "-o", "json", store=folder / "store")
            assert saved.json["records"] == count
    return folder


@pytest.fixture
def store(grown: Path) -> Path:
    """The ledger with four records."""
    return grown / "store"


@pytest.fixture
def backups(grown: Path, tmp_path: Path) -> Path:
    """A directory with backups of one, two and three records, and two other files."""
    folder = tmp_path / "backups"
    folder.mkdir()
    for name in OLDER:
        shutil.copyfile(grown / name, folder / name)
    (folder / "other-20260101T031700Z.backup").write_bytes(b"of another shard")
    (folder / "notes.txt").write_text("kept")
    return folder


@pytest.fixture(scope="module")
def replaced(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Another ledger of the same shard with more records, as one that began on an empty volume."""
    path = tmp_path_factory.mktemp("replaced") / "store"
    for count in range(6):
        assert gpuledger("quota", "set", "-n", "team", f"q{count}", CARDS, store=path).status == 0
    return path


def without_hash(path: Path) -> None:
    """Rewrite a backup as older versions wrote it."""
    header, *payloads = archive_file.read(path)
    count = archive_file.header_of(header, path).records
    path.unlink()
    with ArchiveWriter(path, ArchiveHeader("main", count)) as writer:
        for payload in payloads:
            writer.add(payload)
        writer.finish()


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def test_oldest_backups_of_the_shard_are_deleted(store: Path, backups: Path) -> None:
    before = names(backups)
    report = gpuledger("backup", "--keep", "2", str(backups), "-o", "json", store=store).json
    made = Path(report["file"])
    assert (report["records"], report["kept"], report["deleted"]) == (4, 2, 2)
    assert names(backups) == before - set(OLDER[:2]) | {made.name}
    header = archive_file.header_of(next(archive_file.read(made)), made)
    assert header == ArchiveHeader("main", 4, report["hash"])


def test_kept_backup_is_restored(store: Path, backups: Path, tmp_path: Path) -> None:
    saved = gpuledger("backup", "--keep", "1", str(backups), "-o", "json", store=store).json
    restored = gpuledger("restore", saved["file"], "-o", "json", store=tmp_path / "new").json
    assert restored == {name: saved[name] for name in ("shard", "records", "hash")}


def test_backups_of_older_versions_are_compared(store: Path, backups: Path) -> None:
    without_hash(backups / OLDER[0])
    report = gpuledger("backup", "--keep", "3", str(backups), "-o", "json", store=store).json
    assert report["deleted"] == 1
    assert OLDER[0] not in names(backups)


@pytest.mark.parametrize("old_version", [False, True])
def test_backups_of_a_replaced_log_stay(
    replaced: Path, backups: Path, *, old_version: bool
) -> None:
    if old_version:
        for name in OLDER:
            without_hash(backups / name)
    before = names(backups)
    refused = gpuledger("backup", "--keep", "1", str(backups), store=replaced)
    assert refused.status == 1
    assert f"{OLDER[0]} and 2 more" in refused.err
    assert before < names(backups), "the new one is there, too"


def test_backups_beside_those_of_a_replaced_log_are_rotated(replaced: Path, backups: Path) -> None:
    before = names(backups)
    own = {f"main-2026030{day}T031700Z.backup" for day in (1, 2)}
    for name in own:
        assert gpuledger("backup", str(backups / name), store=replaced).status == 0
    assert gpuledger("backup", "--keep", "2", str(backups), store=replaced).status == 1
    assert names(backups) & own == {max(own)}
    assert before < names(backups)
    assert len(names(backups) - before) == 2


def test_backup_that_is_longer_than_the_log_stays(
    grown: Path, backups: Path, tmp_path: Path
) -> None:
    older = tmp_path / "older"
    assert gpuledger("restore", str(grown / OLDER[0]), store=older).status == 0
    before = names(backups)
    refused = gpuledger("backup", "--keep", "1", str(backups), store=older)
    assert refused.status == 1
    assert OLDER[1] in refused.err
    assert before - names(backups) == {OLDER[0]}


def test_age_is_the_number_of_records_and_not_the_name(store: Path, backups: Path) -> None:
    """A clock that was set back gives a newer backup an older name."""
    newest = backups / "main-20250101T031700Z.backup"
    (backups / OLDER[2]).rename(newest)
    assert gpuledger("backup", "--keep", "2", str(backups), store=store).status == 0
    assert newest.exists()
    assert not (backups / OLDER[1]).exists()


def test_failed_backup_deletes_nothing(backups: Path, tmp_path: Path) -> None:
    before = names(backups)
    assert gpuledger("backup", "--keep", "1", str(backups), store=tmp_path / "no").status == 3
    assert names(backups) == before


def test_files_of_killed_backups_are_removed_after_a_day(store: Path, backups: Path) -> None:
    old, new = (backups / f"main-2026010{day}T040000Z.backup.part" for day in (4, 5))
    for path in (old, new):
        path.write_bytes(b"half")
    day_before = time.time() - 25 * 3600
    os.utime(old, (day_before, day_before))
    assert gpuledger("backup", "--keep", "9", str(backups), store=store).status == 0
    assert (old.exists(), new.exists()) == (False, True)


def test_damaged_backup_stays_and_does_not_stop_the_next(store: Path, backups: Path) -> None:
    (backups / OLDER[2]).write_bytes(b"damaged")
    before = names(backups)
    refused = gpuledger("backup", "--keep", "9", str(backups), store=store)
    assert refused.status == 1
    assert OLDER[2] in refused.err
    assert before < names(backups)


def test_unreadable_files_stay_and_do_not_stop_the_next(store: Path, backups: Path) -> None:
    (backups / OLDER[2]).unlink()
    for name in (OLDER[2], "main-20260104T040000Z.backup.part"):
        (backups / name).symlink_to("nowhere")
    before = names(backups)
    refused = gpuledger("backup", "--keep", "1", str(backups), store=store)
    assert refused.status == 1
    assert f"{OLDER[2]} cannot be replaced" in refused.err
    assert before - names(backups) == set(OLDER[:2]), "those with the log's records are rotated"
    assert len(names(backups) - before) == 1


async def test_backup_is_written_before_the_older_ones_are_compared(
    monkeypatch: pytest.MonkeyPatch, store: Path, backups: Path
) -> None:
    async def fail(_log: Log, _position: int) -> str:
        raise Unreachable("no answer")

    monkeypatch.setattr(backup_rotation, "hash_at", fail)
    before = names(backups)
    with pytest.raises(Unreachable):
        await backup_rotation.rotate(Settings(store_dir=str(store)), str(backups), 1)
    assert before < names(backups)


@pytest.mark.parametrize("keep", ["0", "-1"])
def test_keeping_none_is_refused(store: Path, backups: Path, keep: str) -> None:
    refused = gpuledger("backup", "--keep", keep, str(backups), store=store)
    assert refused.status == 2


def test_absent_directory_is_refused(store: Path, tmp_path: Path) -> None:
    refused = gpuledger("backup", "--keep", "2", str(tmp_path / "absent"), store=store)
    assert refused.status == 2
    assert "not a directory" in refused.err
