"""Archives are read as a container sees their files, and two are compared file by file."""

from pathlib import Path

import pytest
from unit.tools.image.image_archives import REFERENCE, write_archive

from tools.image.comparison import differences


def test_a_file_is_that_of_the_last_layer(tmp_path: Path) -> None:
    archive = write_archive(tmp_path / "a.tar", {"etc/a": b"1", "b": b"2"}, {"etc/a": b"3"})
    assert archive.reference == REFERENCE
    assert archive.files().keys() == {"etc/a", "b"}
    assert archive.read("etc/a") == b"3"


def test_a_whiteout_deletes_the_file_of_a_layer_below(tmp_path: Path) -> None:
    archive = write_archive(tmp_path / "a.tar", {"etc/a": b"1", "b": b"2"}, {"etc/.wh.a": b""})
    assert archive.files().keys() == {"b"}


def test_a_missing_file_is_an_error_with_its_name(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="has no file etc/a"):
        write_archive(tmp_path / "a.tar", {"b": b"2"}).read("etc/a")


def test_the_size_is_that_of_the_compressed_layers(tmp_path: Path) -> None:
    archive = write_archive(tmp_path / "a.tar", {"b": bytes(1_000_000)}, {"c": b"3"})
    assert 100 < archive.size < 10_000


def test_equal_images_have_one_digest_and_no_differences(tmp_path: Path) -> None:
    first = write_archive(tmp_path / "a.tar", {"b": b"2"})
    second = write_archive(tmp_path / "b.tar", {"b": b"2"})
    assert first.digest == second.digest
    assert list(differences(first, second)) == []


def test_each_differing_file_is_a_line(tmp_path: Path) -> None:
    first = write_archive(tmp_path / "a.tar", {"same": b"0", "content": b"1", "gone": b"2"})
    second = write_archive(tmp_path / "b.tar", {"same": b"0", "content": b"9"})
    assert first.digest != second.digest
    lines = list(differences(first, second))
    assert [line.partition(":")[0] for line in lines] == ["/content", "/gone"]
    assert lines[1].endswith("and absent")


def test_another_mode_is_a_difference(tmp_path: Path) -> None:
    first = write_archive(tmp_path / "a.tar", {"b": b"2"})
    second = write_archive(tmp_path / "b.tar", {"b": b"2"}, mode=0o4755)
    (line,) = differences(first, second)
    assert "644" in line
    assert "4755" in line
